//! Table: what was measured in this run, and how the contenders compare.
//!
//! Owns the least time of each measurement: on a shared machine the least is what the code costs, and the rest
//! is what the neighbours cost.

use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Measurements of one benchmark, in the order in which they were made.
#[derive(Debug, Default)]
pub struct Table {
    rows: RefCell<Vec<Row>>,
}

#[derive(Debug)]
struct Row {
    scene: String,
    contender: &'static str,
    nanos: f64,
}

impl Table {
    /// Times `work(count)` and notes its time for one of `count`.
    pub fn time(
        &self,
        scene: &str,
        contender: &'static str,
        count: u64,
        work: impl FnOnce(u64),
    ) -> Duration {
        let start = Instant::now();
        work(count);
        let elapsed = start.elapsed();
        // A handful of pairs would measure the clock.
        if count >= 1000 {
            self.note(scene, contender, elapsed.as_nanos() as f64 / count as f64);
        }
        elapsed
    }

    fn note(&self, scene: &str, contender: &'static str, nanos: f64) {
        let mut rows = self.rows.borrow_mut();
        let known = rows.iter_mut().find(|row| row.scene == scene && row.contender == contender);
        match known {
            Some(row) => row.nanos = row.nanos.min(nanos),
            None => rows.push(Row { scene: scene.into(), contender, nanos }),
        }
    }

    /// The least time of a measurement in nanoseconds, if it was made.
    #[must_use]
    pub fn nanos(&self, scene: &str, contender: &str) -> Option<f64> {
        let rows = self.rows.borrow();
        let row = rows.iter().find(|row| row.scene == scene && row.contender == contender);
        row.map(|row| row.nanos)
    }

    /// Prints a line for each peer of `ours` in each scene.
    pub fn print(&self, ours: &str) {
        println!("\nleast ns a pair, statistics on for ours; ratio below 1: ours is faster");
        for row in self.rows.borrow().iter().filter(|row| row.contender != ours) {
            if let Some(own) = self.nanos(&row.scene, ours) {
                let (scene, peer, nanos) = (&row.scene, row.contender, row.nanos);
                let ratio = own / nanos;
                println!("{scene}: {ours} {own:.1} ns, {peer} {nanos:.1} ns, ratio {ratio:.2}");
            }
        }
    }
}

//! Board: samples of each scene, taken in turn, and their medians and ratios.
//!
//! Scenes are sampled in rounds, each once a round, so that a busy stretch of the machine falls on all of them.

use std::fmt::Write as _;

/// What was measured in one run.
#[derive(Debug, Default)]
pub struct Board {
    rows: Vec<(String, Vec<f64>)>,
}

impl Board {
    /// Notes one sample of a scene.
    pub fn note(&mut self, scene: &str, sample: f64) {
        match self.rows.iter_mut().find(|row| row.0 == scene) {
            Some(row) => row.1.push(sample),
            None => self.rows.push((scene.to_string(), vec![sample])),
        }
    }

    /// The median of a scene, if it was sampled.
    #[must_use]
    pub fn median(&self, scene: &str) -> Option<f64> {
        let mut samples = self.rows.iter().find(|row| row.0 == scene)?.1.clone();
        samples.sort_by(f64::total_cmp);
        samples.get(samples.len() / 2).copied()
    }

    fn least(samples: &[f64]) -> f64 {
        samples.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Prints the median and the least of each scene, as a table; as lines of JSON if the program was
    /// started with `--json`.
    pub fn print(&self, unit: &str) {
        let json = std::env::args().any(|word| word == "--json");
        if !json {
            println!("| scene | median {unit} | least |\n|---|---|---|");
        }
        for (scene, samples) in &self.rows {
            let (median, least) = (self.median(scene).unwrap_or(f64::NAN), Self::least(samples));
            if json {
                println!(
                    "{{\"bench\":\"{scene}\",\"cpu_ns_median\":{median:.1},\"cpu_ns_min\":{least:.1}}}"
                );
            } else {
                println!("| {scene} | {median:.1} | {least:.1} |");
            }
        }
    }

    /// Prints how the medians of pairs of scenes compare; nothing with `--json`.
    pub fn print_ratios(&self, pairs: &[(&str, &str)]) {
        if std::env::args().any(|word| word == "--json") {
            return;
        }
        let mut lines = String::from("| scene | against | ratio of medians |\n|---|---|---|\n");
        for (scene, against) in pairs {
            if let (Some(own), Some(other)) = (self.median(scene), self.median(against)) {
                let _ = writeln!(lines, "| {scene} | {against} | {:.2} |", own / other);
            }
        }
        println!("\n{lines}");
    }
}

/// How many rounds to take: `ROUNDS`, or `usual`.
#[must_use]
pub fn rounds(usual: usize) -> usize {
    std::env::var("ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

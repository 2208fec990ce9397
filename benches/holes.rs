//! Holes: what a pair costs as the free blocks grow in number.
//!
//! A block is freed 16 pairs after it was allocated, so this is also a hit whose free does not wait for its alloc.

use std::time::Duration;

use blockyard_benches::contenders::{Contender, Offset, Ours, Rlsf, Tree};
use blockyard_benches::table::Table;
use blockyard_benches::work::{Holes, Work};
use criterion::Criterion;

const COUNTS: [u32; 6] = [64, 256, 1024, 4096, 16_384, 65_536];

fn main() {
    let mut criterion = Criterion::default()
        .configure_from_args()
        .sample_size(15)
        .warm_up_time(Duration::from_millis(150))
        .measurement_time(Duration::from_millis(450));
    let table = Table::default();
    for one_size in [false, true] {
        for holes in COUNTS {
            measure::<Ours>(&mut criterion, &table, holes, one_size);
            // Its headers lie in the range: more holes would cost a page of real memory each.
            if holes <= 4096 {
                measure::<Rlsf>(&mut criterion, &table, holes, one_size);
            }
            measure::<Offset>(&mut criterion, &table, holes, one_size);
            measure::<Tree>(&mut criterion, &table, holes, one_size);
        }
    }
    table.print(Ours::NAME);
    for one_size in [false, true] {
        for contender in [Ours::NAME, Offset::NAME, Tree::NAME] {
            let nanos = |holes| table.nanos(&scene(holes, one_size), contender);
            if let (Some(few), Some(many)) = (nanos(COUNTS[0]), nanos(COUNTS[5])) {
                let sizes = sizes(one_size);
                println!("64 to 65536 holes {sizes}, {contender}: x {:.2}", many / few);
            }
        }
    }
}

const fn sizes(one_size: bool) -> &'static str {
    if one_size { "of one size" } else { "of mixed sizes" }
}

fn scene(holes: u32, one_size: bool) -> String {
    format!("{holes} holes {}", sizes(one_size))
}

fn measure<C: Contender>(criterion: &mut Criterion, table: &Table, holes: u32, one_size: bool) {
    let scene = scene(holes, one_size);
    let mut work = None;
    criterion.bench_function(&format!("{scene}/{}", C::NAME), |bencher| {
        let work = work.get_or_insert_with(|| Holes::<C>::new(holes, one_size));
        bencher.iter_custom(|count| table.time(&scene, C::NAME, count, |count| work.pairs(count)));
    });
}

//! Hot path: an alloc and a free that the cache serves, beside other allocators.

use std::time::Duration;

use blockyard_benches::contenders::{Contender, Offset, Ours, OursAsPytorch, Rlsf, Tree};
#[cfg(feature = "peers")]
use blockyard_benches::peers::{Cubecl, Mimalloc};
use blockyard_benches::table::Table;
use blockyard_benches::work::{Mixed, OneSize, Work};
use criterion::Criterion;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn main() {
    let mut criterion = Criterion::default()
        .configure_from_args()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600));
    let table = Table::default();
    for (name, bytes) in [("64 KiB", 64 * KIB), ("1 MiB", MIB)] {
        one_size(&mut criterion, &table, &format!("hit {name}"), bytes, true);
        one_size(&mut criterion, &table, &format!("cut and join {name}"), bytes, false);
    }
    for live in [1024, 10_000] {
        mixed(&mut criterion, &table, &format!("mixed to 1 MiB, {live} live"), MIB, live);
        mixed(&mut criterion, &table, &format!("mixed to 64 MiB, {live} live"), 64 * MIB, live);
    }
    table.print("ours");
}

fn one_size(criterion: &mut Criterion, table: &Table, scene: &str, bytes: u64, exact: bool) {
    measure::<Ours>(criterion, table, scene, || Box::new(OneSize::<Ours>::new(bytes, exact)));
    measure::<OursAsPytorch>(criterion, table, scene, || {
        Box::new(OneSize::<OursAsPytorch>::new(bytes, exact))
    });
    measure::<Rlsf>(criterion, table, scene, || Box::new(OneSize::<Rlsf>::new(bytes, exact)));
    measure::<Offset>(criterion, table, scene, || Box::new(OneSize::<Offset>::new(bytes, exact)));
    measure::<Tree>(criterion, table, scene, || Box::new(OneSize::<Tree>::new(bytes, exact)));
    #[cfg(feature = "peers")]
    {
        measure::<Cubecl>(criterion, table, scene, || {
            Box::new(OneSize::<Cubecl>::new(bytes, exact))
        });
        measure::<Mimalloc>(criterion, table, scene, || {
            Box::new(OneSize::<Mimalloc>::new(bytes, exact))
        });
    }
}

fn mixed(criterion: &mut Criterion, table: &Table, scene: &str, high: u64, live: u32) {
    measure::<Ours>(criterion, table, scene, || Box::new(Mixed::<Ours>::new(high, live)));
    measure::<OursAsPytorch>(criterion, table, scene, || {
        Box::new(Mixed::<OursAsPytorch>::new(high, live))
    });
    // Its headers lie in the range: large blocks would cost a page of real memory each.
    if high <= MIB {
        measure::<Rlsf>(criterion, table, scene, || Box::new(Mixed::<Rlsf>::new(high, live)));
    }
    measure::<Offset>(criterion, table, scene, || Box::new(Mixed::<Offset>::new(high, live)));
    measure::<Tree>(criterion, table, scene, || Box::new(Mixed::<Tree>::new(high, live)));
    #[cfg(feature = "peers")]
    if high <= MIB && live <= 1024 {
        measure::<Cubecl>(criterion, table, scene, || Box::new(Mixed::<Cubecl>::new(high, live)));
        measure::<Mimalloc>(criterion, table, scene, || {
            Box::new(Mixed::<Mimalloc>::new(high, live))
        });
    }
}

fn measure<C: Contender>(
    criterion: &mut Criterion,
    table: &Table,
    scene: &str,
    make: impl Fn() -> Box<dyn Work>,
) {
    let mut work: Option<Box<dyn Work>> = None;
    criterion.bench_function(&format!("{scene}/{}", C::NAME), |bencher| {
        let work = work.get_or_insert_with(&make);
        bencher.iter_custom(|count| table.time(scene, C::NAME, count, |count| work.pairs(count)));
    });
}

//! Count: a fixed number of pairs and nothing else, for a tool that counts instructions.
//!
//! `count SCENE CONTENDER PAIRS`. Two runs that differ only in PAIRS differ by what the pairs cost, however much the
//! preparation does. `tools/count-instructions.sh` makes them.

use std::process::ExitCode;

use blockyard::policy::presets;
use blockyard_benches::contenders::{Contender, Offset, Ours, OursAsPytorch, Rlsf, Tree};
#[cfg(feature = "peers")]
use blockyard_benches::peers::{Cubecl, Mimalloc};
use blockyard_benches::whole::{Mix, allocator, borrowed_hits, hits, raw_hits};
use blockyard_benches::work::{Holes, Mixed, OneSize, Work};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [scene, contender, pairs] = words.as_slice() else { return usage() };
    let Ok(pairs) = pairs.parse::<u64>() else { return usage() };
    let work = match contender.as_str() {
        "ours" => scene_for::<Ours>(scene),
        "pytorch" => scene_for::<OursAsPytorch>(scene),
        "rlsf" => scene_for::<Rlsf>(scene),
        "offset" => scene_for::<Offset>(scene),
        "tree" => scene_for::<Tree>(scene),
        #[cfg(feature = "peers")]
        "cubecl" => scene_for::<Cubecl>(scene),
        #[cfg(feature = "peers")]
        "mimalloc" => scene_for::<Mimalloc>(scene),
        "counted" | "borrowed" | "address" => whole(scene, contender),
        _ => None,
    };
    let Some(mut work) = work else { return usage() };
    let start = std::time::Instant::now();
    work.pairs(pairs);
    let nanos = start.elapsed().as_nanos() as f64 / pairs.max(1) as f64;
    println!("{scene} {contender}: {nanos:.1} ns a pair");
    ExitCode::SUCCESS
}

fn scene_for<C: Contender + 'static>(scene: &str) -> Option<Box<dyn Work>> {
    Some(match scene {
        "hit" => Box::new(OneSize::<C>::new(64 << 10, true)),
        "cut" => Box::new(OneSize::<C>::new(64 << 10, false)),
        "mixed" => Box::new(Mixed::<C>::new(1 << 20, 1024)),
        "wide" => Box::new(Mixed::<C>::new(64 << 20, 1024)),
        "many" => Box::new(Mixed::<C>::new(1 << 20, 10_000)),
        "holes64" => Box::new(Holes::<C>::new(64, false)),
        "holes65536" => Box::new(Holes::<C>::new(65_536, false)),
        "same64" => Box::new(Holes::<C>::new(64, true)),
        "same65536" => Box::new(Holes::<C>::new(65_536, true)),
        _ => return None,
    })
}

/// The whole allocator, by one of the three ways to hold a block.
struct Whole(Box<dyn FnMut(u64)>);

impl Work for Whole {
    fn pairs(&mut self, count: u64) {
        (self.0)(count);
    }
}

fn whole(scene: &str, how: &str) -> Option<Box<dyn Work>> {
    let allocator = allocator(presets::blockyard(), 0);
    let stream = allocator.default_stream();
    hits(&stream, 64 << 10, 1);
    let work: Box<dyn FnMut(u64)> = match (scene, how) {
        ("hit", "counted") => Box::new(move |pairs| hits(&stream, 64 << 10, pairs)),
        ("hit", "borrowed") => Box::new(move |pairs| borrowed_hits(&stream, 64 << 10, pairs)),
        ("hit", _) => Box::new(move |pairs| raw_hits(&allocator, &stream, 64 << 10, pairs)),
        ("mixed", "counted") => {
            let mut mix = Mix::new(stream, 1 << 20, 1024, 1024);
            mix.pairs(20_000);
            Box::new(move |pairs| mix.pairs(pairs))
        }
        _ => return None,
    };
    Some(Box::new(Whole(work)))
}

fn usage() -> ExitCode {
    eprintln!(
        "count SCENE CONTENDER PAIRS\n  \
         SCENE      hit cut mixed wide many holes64 holes65536 same64 same65536\n  \
         CONTENDER  ours pytorch rlsf offset tree; with the feature `peers` cubecl mimalloc;\n  \
                    the whole allocator: counted borrowed address (scene hit), counted (mixed)"
    );
    ExitCode::from(2)
}

//! Graph: what was captured, made ready, launched and thrown away.

use crate::capture::Graph;
use crate::code;
use crate::door::{Out, exports};
use crate::world;

exports! {
    Sound(_at) fn cuGraphCreate(graph: Out<u64>, flags: u32) {
        graph.check()?;
        if flags != 0 {
            return Err(code::INVALID_VALUE);
        }
        let mut world = world::lock();
        let handle = world.handle();
        world.captures.graphs.insert(handle, Graph::default());
        graph.set(handle)
    }

    Sound(_at) fn cuGraphDestroy(graph: u64) {
        world::lock().destroy_graph(graph)
    }

    Context(_at) fn cuGraphInstantiate_v2(
        ready: Out<u64>, graph: u64, _node: Out<u64>, _log: Out<u8>, _room: u64,
    ) {
        ready.check()?;
        ready.set(world::lock().instantiate(graph)?)
    }

    Context(_at) fn cuGraphInstantiateWithFlags(ready: Out<u64>, graph: u64, _flags: u64) {
        ready.check()?;
        ready.set(world::lock().instantiate(graph)?)
    }

    Context(_at) fn cuGraphInstantiateWithParams(ready: Out<u64>, graph: u64, how: Out<u64>) {
        ready.check()?;
        // Flags and stream are the caller's; the node that failed and the result are written.
        how.set_at(2, 0)?;
        how.set_at(3, 0)?;
        ready.set(world::lock().instantiate(graph)?)
    }

    Context(at) fn cuGraphUpload(ready: u64, stream: u64) {
        let mut world = world::lock();
        world.stream(at, stream)?;
        let known = world.captures.ready.contains_key(&ready);
        if known { Ok(()) } else { Err(code::INVALID_VALUE) }
    }

    Context(at) fn cuGraphLaunch(ready: u64, stream: u64) {
        let mut world = world::lock();
        let id = world.stream(at, stream)?;
        world.launch_graph(ready, id)
    }

    Sound(_at) fn cuGraphExecDestroy(ready: u64) {
        world::lock().destroy_ready(ready)
    }

    /// The count, and no nodes: they have no handles here.
    Sound(_at) fn cuGraphGetNodes(graph: u64, nodes: Out<u64>, count: Out<u64>) {
        let world = world::lock();
        let known = world.captures.graphs.get(&graph).ok_or(code::INVALID_VALUE)?;
        if !nodes.is_null() {
            return Err(code::NOT_SUPPORTED);
        }
        count.set(known.nodes.len() as u64)
    }
}

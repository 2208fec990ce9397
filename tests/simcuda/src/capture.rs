//! Capture: work that is recorded instead of done, and graphs that do it later.
//!
//! A graph is replayed in the order in which its work was captured, on one stream: an order that
//! respects every dependency, without their parallelism. Asked by whatever queues work.

use crate::code::{self, Code, Done};
use crate::event::Mark;
use crate::stream::Point;
use crate::thread;
use crate::work::Work;
use crate::world::World;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The mode that forbids unsafe calls to all threads.
pub const GLOBAL: u32 = 0;
/// The mode that forbids nothing.
pub const RELAXED: u32 = 2;

/// Captured work, and the earlier work that it depends on.
#[derive(Clone)]
pub struct Node {
    pub work: Work,
    pub after: Vec<usize>,
}

/// A capture in progress.
pub struct Capture {
    pub origin: u64,
    pub mode: u32,
    pub thread: u64,
    pub graph: u64,
    pub nodes: Vec<Node>,
    /// For each stream that takes part, the nodes that its next work depends on.
    pub tails: BTreeMap<u64, Vec<usize>>,
    pub invalid: bool,
}

/// A graph.
#[derive(Clone, Default)]
pub struct Graph {
    pub nodes: Arc<Vec<Node>>,
}

/// Memory that belongs to a graph and to what was instantiated from it.
#[derive(Default)]
pub struct Owned {
    pub owners: u64,
    pub addresses: Vec<u64>,
}

/// Captures, graphs, and graphs made ready.
#[derive(Default)]
pub struct Captures {
    pub live: BTreeMap<u64, Capture>,
    pub graphs: BTreeMap<u64, Graph>,
    /// What is replayed, and the graph that it came from.
    pub ready: BTreeMap<u64, (Graph, u64)>,
    pub memory: BTreeMap<u64, Owned>,
}

impl Capture {
    /// Whether everything captured leads to the stream where it began.
    fn is_joined(&self) -> bool {
        let mut reached = vec![false; self.nodes.len()];
        let mut todo = self.tails.get(&self.origin).cloned().unwrap_or_default();
        while let Some(node) = todo.pop() {
            if !std::mem::replace(&mut reached[node], true) {
                todo.extend(&self.nodes[node].after);
            }
        }
        reached.iter().all(|reached| *reached)
    }
}

impl World {
    /// Queues work, or captures it. `None`: captured.
    pub fn enqueue(&mut self, id: u64, work: Work) -> Result<Option<Point>, Code> {
        let stream = self.streams.get(&id).ok_or(code::INVALID_HANDLE)?;
        if let Some(capture) = stream.capture {
            return self.capture(capture, id, work).map(|()| None);
        }
        if stream.null {
            self.forbid_implicit(stream.context)?;
        }
        self.queue(id, work, Vec::new()).map(Some)
    }

    fn capture(&mut self, capture: u64, stream: u64, work: Work) -> Done {
        let capture = self.captures.live.get_mut(&capture).ok_or(code::UNKNOWN)?;
        if capture.invalid {
            return Err(code::STREAM_CAPTURE_INVALIDATED);
        }
        let tail = capture.tails.entry(stream).or_default();
        capture.nodes.push(Node { work, after: std::mem::take(tail) });
        tail.push(capture.nodes.len() - 1);
        Ok(())
    }

    /// Whether this is the legacy default stream, and a stream that waits for it captures.
    pub fn is_implied(&self, stream: u64) -> bool {
        let null = self.streams.get(&stream).filter(|stream| stream.null);
        null.is_some_and(|null| !self.blocking_captures(null.context).is_empty())
    }

    /// Captures of the context in streams that wait for the legacy default stream.
    fn blocking_captures(&self, context: u64) -> Vec<u64> {
        let blocking = self.streams.values().filter(|s| s.context == context && s.is_blocking());
        blocking.filter_map(|stream| stream.capture).collect()
    }

    /// The legacy default stream may not be used while a stream that waits for it captures.
    fn forbid_implicit(&mut self, context: u64) -> Done {
        let captures = self.blocking_captures(context);
        self.invalidate(&captures, code::STREAM_CAPTURE_IMPLICIT)
    }

    /// No capture may be in progress in the context.
    pub fn forbid_captures(&mut self, context: u64) -> Done {
        let streams = self.streams.values().filter(|stream| stream.context == context);
        let captures: Vec<u64> = streams.filter_map(|stream| stream.capture).collect();
        self.invalidate(&captures, code::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// The stream may not be capturing.
    pub fn forbid_capture(&mut self, stream: u64) -> Done {
        let stream = self.streams.get(&stream).ok_or(code::INVALID_HANDLE)?;
        let captures: Vec<u64> = stream.capture.into_iter().collect();
        let context = stream.context;
        if stream.null {
            self.forbid_implicit(context)?;
        }
        self.invalidate(&captures, code::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// What may be unsafe in a capture is refused, as this thread's mode and the captures' say.
    pub fn forbid_unsafe(&mut self) -> Done {
        let (mode, me) = (thread::capture_mode(None), thread::number());
        let stands_against = |capture: &Capture| {
            let own = capture.thread == me && capture.mode != RELAXED;
            own || (mode == GLOBAL && capture.mode == GLOBAL)
        };
        if mode == RELAXED || self.captures.live.is_empty() {
            return Ok(());
        }
        let live = self.captures.live.iter().filter(|(_, capture)| stands_against(capture));
        let captures: Vec<u64> = live.map(|(id, _)| *id).collect();
        self.invalidate(&captures, code::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Spoils the captures, if there are any, and says so.
    fn invalidate(&mut self, captures: &[u64], code: Code) -> Done {
        for capture in captures {
            if let Some(capture) = self.captures.live.get_mut(capture) {
                capture.invalid = true;
            }
        }
        if captures.is_empty() { Ok(()) } else { Err(code) }
    }

    pub fn begin_capture(&mut self, stream: u64, mode: u32) -> Done {
        if mode > RELAXED {
            return Err(code::INVALID_VALUE);
        }
        let (capture, graph) = (self.handle(), self.handle());
        let known = self.streams.get_mut(&stream).ok_or(code::INVALID_HANDLE)?;
        if known.null {
            return Err(code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if known.capture.is_some() {
            return Err(code::ILLEGAL_STATE);
        }
        known.capture = Some(capture);
        let (nodes, tails) = (Vec::new(), [(stream, Vec::new())].into());
        let thread = thread::number();
        let begun = Capture { origin: stream, mode, thread, graph, nodes, tails, invalid: false };
        self.captures.live.insert(capture, begun);
        self.captures.graphs.insert(graph, Graph::default());
        self.captures.memory.insert(graph, Owned { owners: 1, addresses: Vec::new() });
        Ok(())
    }

    /// Ends the capture that began in this stream; the graph.
    pub fn end_capture(&mut self, stream: u64) -> Result<u64, Code> {
        let known = self.streams.get(&stream).ok_or(code::INVALID_HANDLE)?;
        let id = known.capture.ok_or(code::ILLEGAL_STATE)?;
        let capture = self.captures.live.get_mut(&id).ok_or(code::UNKNOWN)?;
        if capture.origin != stream {
            capture.invalid = true;
            return Err(code::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != RELAXED && capture.thread != thread::number() {
            return Err(code::STREAM_CAPTURE_WRONG_THREAD);
        }
        let Some(capture) = self.captures.live.remove(&id) else { return Err(code::UNKNOWN) };
        for stream in self.streams.values_mut().filter(|stream| stream.capture == Some(id)) {
            stream.capture = None;
        }
        let verdict = match capture.invalid {
            true => Err(code::STREAM_CAPTURE_INVALIDATED),
            false if !capture.is_joined() => Err(code::STREAM_CAPTURE_UNJOINED),
            false => Ok(capture.graph),
        };
        if verdict.is_err() {
            self.destroy_graph(capture.graph)?;
        } else {
            self.captures.graphs.insert(capture.graph, Graph { nodes: capture.nodes.into() });
        }
        verdict
    }

    /// A record in a stream that captures; `None`: it does not capture.
    pub fn captured_mark(&mut self, stream: u64) -> Result<Option<Mark>, Code> {
        let known = self.streams.get(&stream).ok_or(code::INVALID_HANDLE)?;
        let (null, context) = (known.null, known.context);
        let Some(id) = known.capture else {
            if null {
                self.forbid_implicit(context)?;
            }
            return Ok(None);
        };
        let capture = self.captures.live.get(&id).ok_or(code::UNKNOWN)?;
        if capture.invalid {
            return Err(code::STREAM_CAPTURE_INVALIDATED);
        }
        let nodes = capture.tails.get(&stream).cloned().unwrap_or_default();
        Ok(Some(Mark::Captured { capture: id, nodes }))
    }

    /// A stream waits for an event that was recorded in a capture: it takes part from now on.
    pub fn join_capture(&mut self, stream: u64, id: u64, nodes: &[usize]) -> Done {
        let known = self.streams.get_mut(&stream).ok_or(code::INVALID_HANDLE)?;
        let capture = self.captures.live.get_mut(&id).ok_or(code::CAPTURED_EVENT)?;
        if capture.invalid {
            return Err(code::STREAM_CAPTURE_INVALIDATED);
        }
        match known.capture {
            _ if known.null => return self.invalidate(&[id], code::STREAM_CAPTURE_IMPLICIT),
            Some(other) if other != id => {
                return self.invalidate(&[id, other], code::STREAM_CAPTURE_MERGE);
            }
            _ => known.capture = Some(id),
        }
        let tail = capture.tails.entry(stream).or_default();
        tail.extend(nodes);
        tail.sort_unstable();
        tail.dedup();
        Ok(())
    }

    /// A stream that captures waits for an event from outside.
    pub fn forbid_crossing(&mut self, stream: u64) -> Done {
        let known = self.streams.get(&stream).ok_or(code::INVALID_HANDLE)?;
        let (null, context) = (known.null, known.context);
        let captures: Vec<u64> = known.capture.into_iter().collect();
        if null {
            self.forbid_implicit(context)?;
        }
        self.invalidate(&captures, code::STREAM_CAPTURE_ISOLATION)
    }

    /// A captured event was asked about: its capture is spoilt.
    pub fn forbid_captured(&mut self, mark: &Mark) -> Done {
        if let Mark::Captured { capture, .. } = mark {
            return self.invalidate(&[*capture], code::CAPTURED_EVENT);
        }
        Ok(())
    }

    pub fn instantiate(&mut self, graph: u64) -> Result<u64, Code> {
        let known = self.captures.graphs.get(&graph).ok_or(code::INVALID_VALUE)?.clone();
        let ready = self.handle();
        self.captures.ready.insert(ready, (known, graph));
        if let Some(owned) = self.captures.memory.get_mut(&graph) {
            owned.owners += 1;
        }
        Ok(ready)
    }

    pub fn launch_graph(&mut self, ready: u64, stream: u64) -> Done {
        let (graph, _) = self.captures.ready.get(&ready).ok_or(code::INVALID_VALUE)?.clone();
        for node in graph.nodes.iter() {
            self.enqueue(stream, node.work.clone())?;
        }
        if graph.nodes.is_empty() {
            self.enqueue(stream, Work::Nothing)?;
        }
        Ok(())
    }

    pub fn destroy_graph(&mut self, graph: u64) -> Done {
        self.captures.graphs.remove(&graph).ok_or(code::INVALID_VALUE)?;
        self.disown(graph);
        Ok(())
    }

    pub fn destroy_ready(&mut self, ready: u64) -> Done {
        let (_, graph) = self.captures.ready.remove(&ready).ok_or(code::INVALID_VALUE)?;
        self.disown(graph);
        Ok(())
    }

    /// The graph's memory goes with its last owner.
    fn disown(&mut self, graph: u64) {
        let Some(owned) = self.captures.memory.get_mut(&graph) else { return };
        owned.owners -= 1;
        if owned.owners > 0 {
            return;
        }
        let addresses = std::mem::take(&mut owned.addresses);
        self.captures.memory.remove(&graph);
        for address in addresses {
            self.free(address);
        }
    }
}

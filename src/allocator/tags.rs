//! Tags: whose memory it is, in the program's own words.
//!
//! A scope names what its thread allocates until it ends; scopes nest. Names are kept once for the
//! whole process, so a block carries one number. A scope belongs to its thread. What moves between
//! threads takes its tag along by asking: a future by [`Tagging::tagged`], which enters the tag
//! around each poll and its drop, a closure by [`carry`].

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{OnceLock, PoisonError, RwLock};
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

pub use crate::vocab::TagId;

impl TagId {
    /// The names from the outermost scope to this one, joined by `/`; empty for [`TagId::NONE`].
    #[must_use]
    pub fn path(self) -> String {
        let names = names().read().unwrap_or_else(PoisonError::into_inner);
        let mut parts = Vec::new();
        let mut tag = self;
        while tag != Self::NONE
            && let Some((parent, name)) = names.tags.get(tag.0 as usize - 1)
        {
            parts.push(name.as_str());
            tag = *parent;
        }
        parts.reverse();
        parts.join("/")
    }
}

#[derive(Default)]
struct Names {
    tags: Vec<(TagId, String)>,
    by_name: HashMap<(TagId, String), TagId>,
}

fn names() -> &'static RwLock<Names> {
    static NAMES: OnceLock<RwLock<Names>> = OnceLock::new();
    NAMES.get_or_init(RwLock::default)
}

/// The number of `name` inside `parent`.
#[must_use]
pub fn intern(parent: TagId, name: &str) -> TagId {
    let known = names().read().unwrap_or_else(PoisonError::into_inner);
    if let Some(&tag) = known.by_name.get(&(parent, name.to_string())) {
        return tag;
    }
    drop(known);
    let mut names = names().write().unwrap_or_else(PoisonError::into_inner);
    if let Some(&tag) = names.by_name.get(&(parent, name.to_string())) {
        return tag;
    }
    names.tags.push((parent, name.to_string()));
    let tag = TagId(names.tags.len() as u32);
    names.by_name.insert((parent, name.to_string()), tag);
    tag
}

thread_local! {
    /// The tag of the innermost open scope, for [`current`].
    static CURRENT: Cell<TagId> = const { Cell::new(TagId::NONE) };
    static OPEN: RefCell<Open> = const { RefCell::new(Open { scopes: Vec::new(), last: 0 }) };
}

/// The open scopes of this thread, in the order in which they were entered, each with its number.
struct Open {
    scopes: Vec<(u64, TagId)>,
    last: u64,
}

impl Open {
    fn enter(&mut self, tag: TagId) -> u64 {
        self.last += 1;
        self.scopes.push((self.last, tag));
        self.last
    }

    /// Ends a scope, and with `inner` all that were entered after it; the tag that is then in
    /// force. A scope that has ended already is nothing.
    fn leave(&mut self, number: u64, inner: bool) -> TagId {
        match self.scopes.iter().rposition(|scope| scope.0 == number) {
            Some(place) if inner => self.scopes.truncate(place),
            Some(place) => drop(self.scopes.remove(place)),
            None => {}
        }
        self.scopes.last().map_or(TagId::NONE, |scope| scope.1)
    }
}

/// The tag of this thread's innermost scope.
#[inline]
#[must_use]
pub fn current() -> TagId {
    CURRENT.with(Cell::get)
}

/// Names what this thread allocates until it is dropped. Scopes may end in any order: in force is
/// the tag of the one entered last of those still open.
#[derive(Debug)]
pub struct TagScope {
    /// 0: entered when the thread's list of scopes was gone already.
    number: u64,
    outer: TagId,
    /// Takes the scopes along that were entered after it and are still open.
    ends_inner: bool,
    /// A scope belongs to its thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl TagScope {
    /// Opens a scope named `name` inside the present one.
    #[must_use]
    pub fn enter(name: &str) -> Self {
        Self::enter_tag(intern(current(), name))
    }

    /// Opens a scope with this tag, whatever the present one is.
    #[must_use]
    pub fn enter_tag(tag: TagId) -> Self {
        let outer = CURRENT.replace(tag);
        // The destructors of a thread may run after the list's own.
        let number = OPEN.try_with(|open| open.borrow_mut().enter(tag)).unwrap_or(0);
        Self { number, outer, ends_inner: false, _here: std::marker::PhantomData }
    }

    /// As [`TagScope::enter_tag`], for a stretch that no scope entered in it outlives.
    fn around(tag: TagId) -> Self {
        let mut scope = Self::enter_tag(tag);
        scope.ends_inner = true;
        scope
    }
}

impl Drop for TagScope {
    fn drop(&mut self) {
        let leave = |open: &RefCell<Open>| open.borrow_mut().leave(self.number, self.ends_inner);
        CURRENT.set(OPEN.try_with(leave).unwrap_or(self.outer));
    }
}

pin_project! {
    /// A future with a tag: whichever threads poll or drop it, what it allocates has the tag.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Tagged<F> {
        tag: TagId,
        // Gone only while the whole is being dropped.
        #[pin]
        future: Option<F>,
    }

    impl<F> PinnedDrop for Tagged<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let _scope = TagScope::around(*this.tag);
            this.future.set(None);
        }
    }
}

impl<F> Tagged<F> {
    /// This future under this tag. Scopes that it opens between two awaits nest inside the tag.
    pub const fn new(tag: TagId, future: F) -> Self {
        Self { tag, future: Some(future) }
    }

    /// The tag.
    pub const fn tag(&self) -> TagId {
        self.tag
    }
}

impl<F: Future> Future for Tagged<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _scope = TagScope::around(*this.tag);
        this.future.as_pin_mut().map_or(Poll::Pending, |future| future.poll(context))
    }
}

/// Futures that take a tag along.
pub trait Tagging: Future + Sized {
    /// The future under this tag: `work.tagged(tags::current())`.
    fn tagged(self, tag: TagId) -> Tagged<Self> {
        Tagged::new(tag, self)
    }
}

impl<F: Future> Tagging for F {}

/// The closure under the present tag, wherever it runs: `thread::spawn(tags::carry(|| ...))`.
pub fn carry<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let tag = current();
    move || {
        let _scope = TagScope::enter_tag(tag);
        work()
    }
}

/// Names what this thread allocates until the end of the enclosing block: `tag!("layer3.attn");`.
#[macro_export]
macro_rules! tag {
    ($name:expr) => {
        let _blockyard_tag = $crate::allocator::tags::TagScope::enter($name);
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_nest_and_end() {
        assert_eq!(current(), TagId::NONE);
        {
            tag!("layer3");
            let outer = current();
            {
                tag!("attn");
                assert_eq!(current().path(), "layer3/attn");
                assert_eq!(intern(outer, "attn"), current());
            }
            assert_eq!(current(), outer);
        }
        assert_eq!(current().path(), "");
    }

    #[test]
    fn scopes_end_in_any_order() {
        drop(vec![TagScope::enter("a"), TagScope::enter("b")]);
        assert_eq!(current(), TagId::NONE, "the outer one first");
        let (a, b, c) = (TagScope::enter("a"), TagScope::enter("b"), TagScope::enter("c"));
        drop(b);
        assert_eq!(current().path(), "a/b/c", "the innermost is open");
        drop(c);
        assert_eq!(current().path(), "a");
        let d = TagScope::enter("d");
        drop(a);
        assert_eq!(current().path(), "a/d");
        drop(d);
        assert_eq!(current(), TagId::NONE);
    }

    /// Says the tag that is in force when it is dropped.
    struct Says(std::sync::mpsc::Sender<String>);

    impl Drop for Says {
        fn drop(&mut self) {
            let _ = self.0.send(current().path());
        }
    }

    #[test]
    fn a_tagged_future_is_dropped_under_its_tag_and_leaves_no_scope_behind() {
        let (say, said) = std::sync::mpsc::channel();
        let work = async move {
            let _says = Says(say);
            let _held = TagScope::enter("held across the await");
            std::future::pending::<()>().await;
        };
        let mut task = Box::pin(work.tagged(intern(TagId::NONE, "request")));
        let _outer = TagScope::enter("outer");
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(task.as_mut().poll(&mut context).is_pending());
        assert_eq!(current().path(), "outer", "the scope that the future holds is not ours");
        drop(task);
        assert_eq!(said.recv().as_deref(), Ok("request"));
        assert_eq!(current().path(), "outer");
    }

    thread_local! { static LATE: RefCell<Option<Late>> = const { RefCell::new(None) }; }

    /// Enters a scope, and ends the one it holds, when its thread is over.
    struct Late(Option<TagScope>, std::sync::mpsc::Sender<(String, String)>);

    impl Drop for Late {
        fn drop(&mut self) {
            let inner = TagScope::enter("late");
            let inside = current().path();
            drop(inner);
            drop(self.0.take());
            let _ = self.1.send((inside, current().path()));
        }
    }

    #[test]
    fn scopes_work_in_the_destructors_of_a_thread() {
        let (say, said) = std::sync::mpsc::channel();
        // The list of scopes is made first or last, so that it goes last or first.
        for first in [false, true] {
            let say = say.clone();
            let run = move || {
                let _early = first.then(|| TagScope::enter("early"));
                LATE.set(None);
                LATE.set(Some(Late(Some(TagScope::enter("kept")), say)));
            };
            assert!(std::thread::spawn(run).join().is_ok());
            let (inside, after) = said.recv().unwrap_or_default();
            assert!(inside.ends_with("kept/late"), "{inside}");
            assert_eq!(after, "", "nothing is left");
        }
    }
}

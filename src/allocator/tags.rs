//! Tags: whose memory it is, in the program's own words.
//!
//! A scope names what its thread allocates until it ends; scopes nest. Names are kept once for the
//! whole process, so a block carries one number. A scope belongs to its thread. What moves between
//! threads takes its tag along by asking: a future by [`Tagging::tagged`], which enters the tag
//! around each poll, a closure by [`carry`].

use std::cell::Cell;
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

thread_local! { static CURRENT: Cell<TagId> = const { Cell::new(TagId::NONE) }; }

/// The tag of this thread's innermost scope.
#[inline]
#[must_use]
pub fn current() -> TagId {
    CURRENT.with(Cell::get)
}

/// Names what this thread allocates until it is dropped.
#[derive(Debug)]
pub struct TagScope {
    outer: TagId,
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
        let outer = CURRENT.with(|current| current.replace(tag));
        Self { outer, _here: std::marker::PhantomData }
    }
}

impl Drop for TagScope {
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.outer));
    }
}

pin_project! {
    /// A future with a tag: whichever threads poll it, what it allocates has the tag.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Tagged<F> {
        tag: TagId,
        #[pin]
        future: F,
    }
}

impl<F> Tagged<F> {
    /// This future under this tag. Scopes that it opens between two awaits nest inside the tag.
    pub const fn new(tag: TagId, future: F) -> Self {
        Self { tag, future }
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
        let _scope = TagScope::enter_tag(*this.tag);
        this.future.poll(context)
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
}

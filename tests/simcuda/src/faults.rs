//! Faults: calls that are to fail, and when.
//!
//! Each entry point has a plan of its own. Asked by the door at each call.

use parking_lot::Mutex;

/// The calls of one entry point that will fail.
pub struct Plan(Mutex<Vec<Fault>>);

struct Fault {
    /// Calls until it strikes; 1 is the next.
    calls: u64,
    code: i32,
    forever: bool,
}

impl Plan {
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// The `nth` call from now (1 is the next) fails with `code`, and all after it if `forever`.
    pub fn add(&self, nth: u64, code: i32, forever: bool) {
        self.0.lock().push(Fault { calls: nth.max(1), code, forever });
    }

    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// Counts a call; the code that it fails with, if it does.
    pub fn strike(&self) -> Option<i32> {
        let mut faults = self.0.lock();
        let mut code = None;
        for fault in faults.iter_mut() {
            fault.calls = fault.calls.saturating_sub(1);
            if fault.calls == 0 {
                code = code.or(Some(fault.code));
            }
        }
        faults.retain(|fault| fault.calls > 0 || fault.forever);
        code
    }
}

/// `name:nth:code`, or `name:nth:code:forever`.
pub fn parse(text: &str) -> Option<(&str, u64, i32, bool)> {
    let parts: Vec<&str> = text.trim().split(':').collect();
    let forever = match parts.get(3) {
        None => false,
        Some(&"forever") => true,
        Some(_) => return None,
    };
    Some((parts.first()?, parts.get(1)?.parse().ok()?, parts.get(2)?.parse().ok()?, forever))
}

#[cfg(test)]
mod tests {
    use super::{Plan, parse};

    #[test]
    fn a_fault_strikes_once_or_for_ever() {
        let plan = Plan::new();
        plan.add(2, 7, false);
        plan.add(4, 9, true);
        let struck: Vec<_> = (0..6).map(|_| plan.strike()).collect();
        assert_eq!(struck, [None, Some(7), None, Some(9), Some(9), Some(9)]);
    }

    #[test]
    fn a_plan_is_read_from_text() {
        assert_eq!(parse("cuMemCreate:3:2"), Some(("cuMemCreate", 3, 2, false)));
        assert_eq!(parse("cuInit:1:100:forever"), Some(("cuInit", 1, 100, true)));
        assert_eq!(parse("cuInit:1:100:once-more"), None);
        assert_eq!(parse("cuInit"), None);
    }
}

//! Diagnosis: why a request failed, which setting would have served it, and the smallest trace that still fails.
//!
//! Owns the verdicts and the searches that replay a recording many times. Asked by the tools. Never claims what
//! was not replayed, and never knows a file format or a terminal.
//!
//! | file | what |
//! |---|---|
//! | `verdict`, `verdict/` | classes, findings, figures: what every judge gives; figures, judged |
//! | `explain`, `explain/` | a recording, to the failure or to its end |
//! | `message`, `message/` | pasted messages, read |
//! | `pinning`, `pinning/` | the smallest set of live blocks in the way |
//! | `proof` | settings worth a try, and their replays |
//! | `search`, `search/` | a recording measured under many policies, on many threads |
//! | `capacity`, `pareto` | the smallest device; what nothing else beats |
//! | `shrink`, `shrink/` | the smallest trace that still fails |
//! | `owners`, `growth`, `growth/` | whose memory it is, from one moment to another, across steps |
//! | `consistency`, `consistency/`, `safety` | whether a recording can have happened; reuse before a fence |

pub mod capacity;
pub mod consistency;
pub mod explain;
pub mod growth;
pub mod message;
pub mod owners;
pub mod pareto;
pub mod pinning;
pub mod proof;
pub mod safety;
pub mod search;
pub mod shrink;
pub mod verdict;

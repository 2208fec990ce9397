//! Diagnosis: why a request failed, which setting would have served it, and the smallest trace that still fails.
//!
//! Owns the verdicts and the searches that replay a recording many times. Asked by the tools. Never claims what
//! was not replayed, and never knows a file format or a terminal.
//!
//! | file | what |
//! |---|---|
//! | `verdict` | classes, findings, figures: what every judge gives |
//! | `explain`, `explain_scene`, `explain_owners`, `explain_calm` | a recording, to the failure or to its end |
//! | `pinning`, `pinning_cover` | the smallest set of live blocks in the way |
//! | `proof` | settings worth a try, and their replays |
//! | `message`, `figures`, `message_*` | pasted messages, read |
//! | `verdict_message`, `verdict_report`, `verdict_residue` | figures, judged |
//! | `search`, `search_*` | a recording measured under many policies, on many threads |
//! | `capacity`, `pareto` | the smallest device; what nothing else beats |
//! | `shrink`, `shrink_*` | the smallest trace that still fails |
//! | `owners`, `growth`, `growth_*` | whose memory it is, from one moment to another, across steps |
//! | `consistency`, `consistency_*`, `safety` | whether a recording can have happened; reuse before a fence |

pub mod capacity;
pub mod explain;
pub mod explain_calm;
pub mod explain_owners;
pub mod explain_scene;
pub mod figures;
pub mod message;
mod message_pytorch;
mod message_runtimes;
mod message_xla;
pub mod pareto;
pub mod pinning;
mod pinning_cover;
pub mod proof;
pub mod search;
pub mod search_knobs;
pub mod search_rows;
mod search_streams;
pub mod search_tune;
pub mod shrink;
mod shrink_delete;
mod shrink_merge;
pub mod shrink_script;
pub mod verdict;
pub mod verdict_message;
pub mod verdict_report;
pub mod verdict_residue;

pub mod consistency;
mod consistency_memory;
pub mod growth;
pub mod growth_leaks;
pub mod growth_steps;
pub mod owners;
pub mod safety;

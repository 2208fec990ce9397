//! Diagnose: from the numbers of a failed request to the cause, in one word.

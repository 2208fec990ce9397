//! Case: to be written by BLESS.

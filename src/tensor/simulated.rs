//! Simulated: the work of a place that has no bytes: everything is done at once, nothing is read.

use super::compute::{Compute, ComputeError, CsrTimesDense, Region, Side, Strided};
use crate::device::HostFile;
use crate::vocab::StreamId;

/// Pretends.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoValues;

impl Compute for NoValues {
    fn has_values(&self) -> bool {
        false
    }

    fn adopt(&self, file: HostFile) -> Result<Region, HostFile> {
        Err(file)
    }

    fn fill(&self, _: Side, _: u64, _: u64, _: StreamId) -> Result<(), ComputeError> {
        Ok(())
    }

    fn copy(&self, _: Side, _: Side, _: &Strided, _: StreamId) -> Result<(), ComputeError> {
        Ok(())
    }

    fn write(&self, _: Side, _: &[u8], _: StreamId) -> Result<(), ComputeError> {
        Ok(())
    }

    fn read(&self, _: Side, _: &mut [u8], _: StreamId) -> Result<(), ComputeError> {
        Err(ComputeError::NoValues)
    }

    fn csr_times_dense(&self, _: &CsrTimesDense, _: StreamId) -> Result<(), ComputeError> {
        Ok(())
    }
}

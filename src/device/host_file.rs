//! File: a file's bytes as memory of the host, without reading it first.
//!
//! Owns the mapping. Asked by whoever makes tensors from files. Never knows what the bytes mean.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use crate::vocab::Address;

/// A file mapped into memory, privately: what is written here is never seen in the file. Pages are
/// read when they are first touched.
#[derive(Debug)]
pub struct HostFile(memmap2::MmapMut);

impl HostFile {
    /// Maps the whole file.
    ///
    /// ```
    /// use blockyard::device::HostFile;
    /// use blockyard::tensor::{DType, Place, Tensor};
    ///
    /// let path = std::env::temp_dir().join(format!("blockyard-mapped-{}", std::process::id()));
    /// std::fs::write(&path, [1.0f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat())?;
    /// // SAFETY: nobody else knows this file.
    /// let file = unsafe { HostFile::map(&std::fs::File::open(&path)?)? };
    /// let host = Place::host();
    /// let bytes = Tensor::from_file(&host, file)?;
    /// let numbers = bytes.view_dtype(DType::F32)?.view(&[2, 2])?;
    /// assert_eq!(numbers.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    /// assert_eq!(host.allocator().memory_allocated(), 0, "the file is the storage");
    /// numbers.fill_(0.0f32)?;
    /// assert_eq!(std::fs::read(&path)?[2], 0x80, "the file is as it was");
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    /// As long as this lives, nobody writes to the file or makes it shorter: bytes that change
    /// under a reference are undefined behaviour, and bytes that vanish kill the process.
    ///
    /// # Errors
    /// The system's. An empty file is an empty tensor's.
    pub unsafe fn map(file: &File) -> io::Result<Self> {
        // SAFETY: the caller promises what mapping a file demands.
        unsafe { memmap2::MmapOptions::new().map_copy(file) }.map(Self)
    }

    /// Where it starts: at a page.
    #[must_use]
    pub fn address(&self) -> Address {
        Address(self.0.as_ptr().addr() as u64)
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same, to write to.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

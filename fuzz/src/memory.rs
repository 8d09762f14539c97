//! How much memory reading may take.

use std::alloc::System;

use cap::Cap;

/// Bytes of the whole process: a length that an input only claims must not be allocated.
const ALL_MAX: usize = 512 << 20;

/// Bytes that reading may allocate besides what follows from the length of the input.
const FREE: usize = 64 << 10;

/// Bytes that reading may allocate for each byte of the input.
const FOR_EACH: usize = 256;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, ALL_MAX);

/// Does something, and panics if it allocated more than the length of its input can explain.
pub(crate) fn bounded<T>(input: &[u8], read: impl FnOnce() -> T) -> T {
    let before = ALLOCATOR.total_allocated();
    let read = read();
    let took = ALLOCATOR.total_allocated() - before;
    assert!(took <= FREE + FOR_EACH * input.len(), "{took} bytes were allocated for {} that were read", input.len());
    read
}

//! How much memory and time reading may take.

use std::alloc::System;
use std::time::Duration;

use cap::Cap;
use rustix::time::{ClockId, clock_gettime};

/// Bytes of the whole process: a length that an input only claims must not be allocated.
const ALL_MAX: usize = 512 << 20;

/// Bytes that reading may allocate besides what follows from the length of the input.
const FREE: usize = 64 << 10;

/// Bytes that reading may allocate for each byte of the input.
const FOR_EACH: usize = 256;

/// Processor time that reading one input may take, of 4 KiB at most: a thousand times what it takes, so that neither a slow
/// build nor a page that is not in memory counts. What takes the square of the length is past it.
const TIME_MAX: Duration = Duration::from_secs(1);

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, ALL_MAX);

/// Does something, and panics if it allocated more than the length of its input can explain, or took too long.
pub(crate) fn bounded<T>(input: &[u8], read: impl FnOnce() -> T) -> T {
    let before = ALLOCATOR.total_allocated();
    let read = in_time(read);
    let took = ALLOCATOR.total_allocated() - before;
    assert!(took <= FREE + FOR_EACH * input.len(), "{took} bytes were allocated for {} that were read", input.len());
    read
}

/// Does something, and panics if it took too long. Its own processor time, so that a busy machine does not count.
pub(crate) fn in_time<T>(read: impl FnOnce() -> T) -> T {
    let before = processor_time();
    let read = read();
    let took = processor_time() - before;
    assert!(took <= TIME_MAX, "{took:?} for one input");
    read
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let whole = |part: i64| u64::try_from(part).unwrap_or_default();
    Duration::from_secs(whole(time.tv_sec)) + Duration::from_nanos(whole(time.tv_nsec))
}

//! The clocks, the entropy and the disk of a simulated machine.
//!
//! A program that links this crate has its own `clock_gettime` and `getrandom`: they answer as the C library does, except
//! on a thread that has [entered](enter) a machine. So the code under test reads time and entropy as it does in production,
//! through the standard library and every crate that it uses, and needs no parameter for them.
//!
//! The calls that change files are replaced too: those below the directory of a [`Disk`] may fail, and a power cut leaves
//! what was synced.
//!
//! Not covered: what makes system calls without the C library. `ring` does for random bytes.

mod disk;
mod files;

use std::cell::RefCell;
use std::mem::MaybeUninit;

use libc::{c_int, c_long, c_uint, c_void, clockid_t, size_t, ssize_t, timespec};

pub use disk::{Disk, Keep};

/// What a machine shows to the code that runs on it.
pub trait Machine {
    /// Nanoseconds since 1970, by its clock, which may be wrong.
    fn wall(&self) -> u64;
    /// Nanoseconds since it started.
    fn uptime(&self) -> u64;
    /// The next random bits.
    fn random(&self) -> u64;
}

thread_local! {
    static MACHINE: RefCell<Option<Box<dyn Machine>>> = const { RefCell::new(None) };
}

/// From here on this thread runs on a machine. Answers the one before.
pub fn enter(machine: Option<Box<dyn Machine>>) -> Option<Box<dyn Machine>> {
    MACHINE.with(|there| there.replace(machine))
}

fn on_machine<T>(ask: impl FnOnce(&dyn Machine) -> T) -> Option<T> {
    // A thread that is ending has no machine any more.
    MACHINE.try_with(|there| there.try_borrow().ok()?.as_deref().map(ask)).ok().flatten()
}

/// # Safety
/// `at` points to a `timespec`, as for `clock_gettime(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, at: *mut timespec) -> c_int {
    let nanos = match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => on_machine(|machine| machine.wall()),
        libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_COARSE | libc::CLOCK_MONOTONIC_RAW | libc::CLOCK_BOOTTIME => {
            on_machine(|machine| machine.uptime())
        }
        _ => None,
    };
    match nanos {
        Some(nanos) => {
            let seconds = (nanos / 1_000_000_000) as libc::time_t;
            let rest = (nanos % 1_000_000_000) as c_long;
            // SAFETY: the caller promises that `at` can be written.
            unsafe { at.write(timespec { tv_sec: seconds, tv_nsec: rest }) };
            0
        }
        // SAFETY: the arguments are those of the caller.
        None => unsafe { libc::syscall(libc::SYS_clock_gettime, clock, at) as c_int },
    }
}

/// # Safety
/// `bytes` points to `count` bytes, as for `getrandom(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(bytes: *mut c_void, count: size_t, flags: c_uint) -> ssize_t {
    // SAFETY: the caller promises that so many bytes can be written.
    let there = unsafe { std::slice::from_raw_parts_mut(bytes.cast::<MaybeUninit<u8>>(), count) };
    let drawn = on_machine(|machine| {
        for part in there.chunks_mut(8) {
            for (to, from) in part.iter_mut().zip(machine.random().to_le_bytes()) {
                to.write(from);
            }
        }
        count as ssize_t
    });
    // SAFETY: the arguments are those of the caller.
    drawn.unwrap_or_else(|| unsafe { libc::syscall(libc::SYS_getrandom, bytes, count, flags) as ssize_t })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    use super::*;

    struct Still;

    impl Machine for Still {
        fn wall(&self) -> u64 {
            1_700_000_000_000_000_001
        }

        fn uptime(&self) -> u64 {
            5_000_000_000
        }

        fn random(&self) -> u64 {
            7
        }
    }

    #[test]
    fn a_thread_sees_its_machine_and_others_see_the_real_one() {
        let order = || {
            std::thread::spawn(|| {
                enter(Some(Box::new(Still)));
                let map: HashMap<u32, u32> = (0..100).map(|n| (n, n)).collect();
                let began = Instant::now();
                let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                (map.into_keys().collect::<Vec<_>>(), began.elapsed(), wall)
            })
            .join()
            .unwrap_or_default()
        };
        let (some, elapsed, wall) = order();
        assert_eq!((elapsed, wall), (Duration::ZERO, Duration::new(1_700_000_000, 1)));
        assert_eq!(some, order().0);
        let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        assert!(real > wall);
    }
}

//! The `dwell` command.

/// It gives memory back that clients made the broker take, which the allocator of glibc keeps; and that of musl has one lock
/// for all threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    dwell::command_line::main()
}

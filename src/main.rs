//! The `dwell` command.

/// In the static binary; elsewhere the allocator of the system is as good.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    dwell::cli::main()
}

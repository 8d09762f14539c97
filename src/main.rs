//! The `dwell` command.

fn main() -> std::process::ExitCode {
    dwell::cli::main()
}

//! The `matrix` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    // A guard is a process of its own that ends the command it watches when
    // its parent is gone; it must not become anything bigger.
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|arg| arg == "__guard") {
        std::process::exit(matrix::process::guard::main(args));
    }
    matrix::commands::main()
}

//! The program: all that it does is in `softnic-cli`. A library is compiled as soon as the types of what it stands on are known, a program
//! only when their code is.

fn main() -> std::process::ExitCode {
    softnic_cli::main()
}

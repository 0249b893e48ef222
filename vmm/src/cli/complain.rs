//! Writing to standard error.

/// As `eprintln!`, but who has closed standard error (`2>&1 | head`) is not told, instead of panicking.
macro_rules! complain {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($argument)*);
    }};
}

//! Building the bare-metal programs.

use std::path::Path;
use std::process::Command;

use nicvisor::boot::Kernel;

/// Assembles and links `tests/bare_metal/NAME.S` with the system's tools.
pub(crate) fn program(name: &str) -> Kernel {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bare_metal");
    let directory = tempfile::tempdir().expect("temporary directory");
    let object = directory.path().join("program.o");
    let image = directory.path().join("program.elf");
    let source = sources.join(format!("{name}.S"));
    let script = sources.join("program.ld");
    let [sources, source, object_path, image_path, script] =
        [&sources, &source, &object, &image, &script].map(|path| path.to_str().expect("a path in UTF-8"));
    tool("cc", &["-c", "-m64", &format!("-Wa,-I{sources}"), "-o", object_path, source]);
    let format =
        ["-m", "elf_x86_64", "-static", "-nostdlib", "-z", "noexecstack", "-z", "max-page-size=4096"];
    tool("ld", &[&format[..], &["-T", script, "-o", image_path, object_path]].concat());
    Kernel::read(&image).expect("a multiboot program")
}

fn tool(name: &str, arguments: &[&str]) {
    let output = Command::new(name).args(arguments).output().unwrap_or_else(|error| {
        panic!("cannot run {name} ({error}): install gcc and binutils");
    });
    assert!(output.status.success(), "{name} failed:\n{}", String::from_utf8_lossy(&output.stderr));
}

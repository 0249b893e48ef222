//! Programs of one Debian release, run on another.
//!
//! What is unpacked here was linked against the libraries of its own release, which the host may not have or
//! may have older. Each program is therefore started by its own release's dynamic linker, through a script in
//! its place. The scripts find everything from where they are themselves, so that the cache can be moved.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::elf;

/// A tree of unpacked packages with the libraries that programs need.
#[derive(Clone, Debug)]
pub(super) struct Libraries {
    /// The dynamic linker, and the directories with libraries, relative to a directory that they have in
    /// common with the programs.
    linker: String,
    directories: Vec<String>,
}

impl Libraries {
    /// Finds them below `root`; `name` is what `root` is called from where programs and libraries meet.
    pub(super) fn find(root: &Path, name: &str) -> Option<Libraries> {
        let linker = LIBRARY_DIRECTORIES.iter().find(|place| root.join(place).join(LINKER).exists())?;
        let present = LIBRARY_DIRECTORIES.iter().filter(|place| root.join(place).is_dir());
        Some(Libraries {
            linker: format!("{name}/{linker}/{LINKER}"),
            directories: present.map(|place| format!("{name}/{place}")).collect(),
        })
    }
}

/// Puts scripts in the place of all programs below `directory`. `depth` is how many directories `directory`
/// is below the one that the libraries' names start from.
pub(super) fn wrap(directory: &Path, depth: usize, libraries: &Libraries) -> io::Result<()> {
    let mut programs = Vec::new();
    find_programs(directory, depth, &mut programs)?;
    for (program, depth) in programs {
        wrap_one(&program, depth, libraries)?;
    }
    Ok(())
}

fn wrap_one(program: &Path, depth: usize, libraries: &Libraries) -> io::Result<()> {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    fs::rename(program, program.with_file_name(format!("{name}{SUFFIX}")))?;
    fs::write(program, script(&name, depth, libraries))?;
    fs::set_permissions(program, fs::Permissions::from_mode(0o755))
}

fn script(name: &str, depth: usize, libraries: &Libraries) -> String {
    let up = "/..".repeat(depth);
    let directories: Vec<String> =
        libraries.directories.iter().map(|directory| format!("$here{up}/{directory}")).collect();
    // A compiler finds its parts from the name that it is started by.
    format!(
        "#!/bin/sh\nhere=${{0%/*}}\nexec \"$here{up}/{}\" --library-path \"{}\" --argv0 \"$0\" \"$here/{name}{SUFFIX}\" \"$@\"\n",
        libraries.linker,
        directories.join(":")
    )
}

fn find_programs(directory: &Path, depth: usize, found: &mut Vec<(PathBuf, usize)>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            find_programs(&path, depth + 1, found)?;
        } else if kind.is_file() && entry.metadata()?.permissions().mode() & 0o100 != 0 && is_program(&path)?
        {
            found.push((path, depth));
        }
    }
    Ok(())
}

/// Whether it is started by a dynamic linker.
fn is_program(path: &Path) -> io::Result<bool> {
    let mut head = [0; 4];
    let mut file = fs::File::open(path)?;
    if io::Read::read(&mut file, &mut head)? < head.len() || head != *b"\x7fELF" {
        return Ok(false);
    }
    let bytes = fs::read(path)?;
    let is_library = path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so"));
    Ok(!is_library && elf::needs(&bytes).is_ok_and(|needs| needs.interpreter.is_some()))
}

const LINKER: &str = "ld-linux-x86-64.so.2";
const LIBRARY_DIRECTORIES: &[&str] = &["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
/// Of the program itself, beside the script that starts it.
const SUFFIX: &str = ".elf";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapped_program_runs_by_the_linker_that_it_is_given_wherever_it_is_moved() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("one");
        let (root, programs) = (base.join("tools"), base.join("headers/scripts/mod"));
        for directory in [root.join("lib/x86_64-linux-gnu"), programs.clone()] {
            fs::create_dir_all(directory).unwrap();
        }
        // The host's own: what matters is that they are found where the script looks.
        let host = fs::canonicalize("/lib64/ld-linux-x86-64.so.2").unwrap();
        fs::copy(host, root.join("lib/x86_64-linux-gnu").join(LINKER)).unwrap();
        let libraries = fs::canonicalize("/lib/x86_64-linux-gnu").unwrap();
        fs::copy(libraries.join("libc.so.6"), root.join("lib/x86_64-linux-gnu/libc.so.6")).unwrap();
        fs::copy(fs::canonicalize("/bin/echo").unwrap(), programs.join("echo")).unwrap();
        fs::write(programs.join("script.sh"), "#!/bin/sh\n").unwrap();
        let found = Libraries::find(&root, "tools").unwrap();
        wrap(&base.join("headers"), 1, &found).unwrap();
        let moved = directory.path().join("two");
        fs::rename(&base, &moved).unwrap();
        let output =
            std::process::Command::new(moved.join("headers/scripts/mod/echo")).arg("a  b").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "a  b\n", "{output:?}");
        assert!(!moved.join("headers/scripts/mod/script.sh.elf").exists());
    }
}

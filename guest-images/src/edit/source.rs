//! Drivers' source from Debian's `linux-source` packages.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    process::Stdio,
};

use super::drivers;
use crate::{
    ImageError, Store,
    apt::{self, Apt},
    cache::Lock,
    store,
};

/// The directory with the source of all drivers that can be edited, in the places that they have in the
/// kernel's tree: from the cache, or fetched. `package` is such as `linux-source-6.12`.
pub(super) fn ensure(
    store: &Store,
    lock: &Lock,
    apt: impl FnOnce() -> Result<Apt, ImageError>,
    package: &str,
    version: &str,
) -> Result<PathBuf, ImageError> {
    let entry = format!("{package}_{}_{FORMAT}", version.replace(':', "%3a"));
    let target = store.cache.path(super::build::DIRECTORY).join("sources").join(entry);
    if store.uses.hold(&target) {
        return Ok(target);
    }
    let apt = apt()?;
    let known = apt.show(&[package.to_owned()])?;
    if !known.iter().any(|paragraph| paragraph.get("Version") == Some(version)) {
        return Err(ImageError::NotOnMirror {
            what: format!("source of this kernel ({package} {version})"),
            hint: "; its drivers cannot be edited".into(),
        });
    }
    let wanted = [(package.to_owned(), version.to_owned())];
    let (fetched, _) = store.download(&apt, &wanted, &format!("fetching {package} {version}"))?;
    let _task = store.progress.start("taking the drivers out of the kernel's source");
    let workspace = store.cache.workspace(lock)?;
    let finished = workspace.path().join("source");
    fs::create_dir(&finished).map_err(ImageError::cache(&finished))?;
    unpack(&fetched[0].file, &finished)?;
    store.cache.publish(lock, &finished, &target)?;
    store::forget(&fetched);
    Ok(target)
}

/// Takes the wanted files out of the compressed archive in the package, without unpacking what is not wanted.
fn unpack(package: &Path, target: &Path) -> Result<(), ImageError> {
    let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let bad = |reason: String| ImageError::BadPackage { package: name.clone(), reason };
    let mut command = apt::tool("dpkg-deb");
    command.arg("--fsys-tarfile").arg(package).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| apt::cannot_run(&command, error))?;
    let stream = child.stdout.take().ok_or_else(|| bad("it cannot be read".into()))?;
    let found = extract_inner(stream, target);
    // It has no reader any more if the archive was damaged.
    let _ = child.kill();
    child.wait().map_err(|error| apt::cannot_run(&command, error))?;
    match found {
        Ok(0) => Err(bad("has no kernel source in it".into())),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Err(ImageError::cache(target)(error)),
        Err(error) => Err(bad(error.to_string())),
    }
}

/// Returns how many files there were.
fn extract_inner(package: impl Read, target: &Path) -> io::Result<usize> {
    for entry in tar::Archive::new(package).entries()? {
        let entry = entry?;
        if entry.path()?.extension().is_some_and(|suffix| suffix == "xz") {
            return extract(liblzma::read::XzDecoder::new(entry), target);
        }
    }
    Ok(0)
}

fn extract(archive: impl Read, target: &Path) -> io::Result<usize> {
    let mut count = 0;
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        // All is below one directory of the source's name.
        let Some((_, path)) = path.to_str().and_then(|path| path.split_once('/')) else { continue };
        if entry.header().entry_type().is_file() && drivers::is_wanted(path) && !path.contains("..") {
            let file = target.join(path);
            file.parent().map_or(Ok(()), fs::create_dir_all)?;
            io::copy(&mut entry, &mut fs::File::create(&file)?)?;
            count += 1;
        }
    }
    Ok(count)
}

/// Changed when other files are taken out.
const FORMAT: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, contents) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(contents.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, path, *contents).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn only_drivers_are_taken_out_of_the_archive_in_the_package() {
        let inner = archive(&[
            ("linux-source-6.12/drivers/net/geneve.c", b"geneve"),
            ("linux-source-6.12/drivers/net/tun.c", b"tun"),
            ("linux-source-6.12/drivers/net/vxlan/Makefile", b"vxlan"),
        ]);
        let mut compressed = Vec::new();
        liblzma::read::XzEncoder::new(inner.as_slice(), 1).read_to_end(&mut compressed).unwrap();
        let package = archive(&[
            ("./usr/share/doc/copyright", b"x"),
            ("./usr/src/linux-source-6.12.tar.xz", &compressed),
        ]);
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(extract_inner(package.as_slice(), directory.path()).unwrap(), 2);
        assert_eq!(fs::read(directory.path().join("drivers/net/geneve.c")).unwrap(), b"geneve");
        assert!(!directory.path().join("drivers/net/tun.c").exists());
        let cut = archive(&[("./usr/src/linux-source-6.12.tar.xz", &compressed[..compressed.len() / 2])]);
        assert!(extract_inner(cut.as_slice(), directory.path()).is_err());
        assert_eq!(extract_inner(archive(&[("a", b"b")]).as_slice(), directory.path()).unwrap(), 0);
    }
}

//! Edits of drivers, as the command line names them.

use std::path::{Path, PathBuf};

use guest_images::edit::{Edit, EditedModule, build_modules};
use guest_images::{Kernel, Store};

use super::failure::Failure;

/// Reads edits that are named by their files, or by the names of those that the project has.
pub(super) fn load(names: &[String]) -> Result<Vec<Edit>, Failure> {
    names
        .iter()
        .map(|name| {
            let is_path = name.contains('/') || name.ends_with(".toml");
            let edit = if is_path { Edit::load(Path::new(name)) } else { Edit::named(name, &scenarios()) };
            Ok(edit?)
        })
        .collect()
}

/// The one driver that is meant.
pub(super) fn driver(given: Option<&str>, edits: &[Edit]) -> Result<Option<String>, Failure> {
    let help = "build one driver at a time";
    let driver = given.map(|name| name.replace('-', "_")).or_else(|| Some(edits.first()?.driver.clone()));
    if let Some(driver) = &driver
        && let Some(other) = edits.iter().find(|edit| edit.driver != *driver)
    {
        let message = format!("{} is an edit of {}, not of {driver}", other.name, other.driver);
        return Err(Failure::Usage(message, help.into()));
    }
    Ok(driver)
}

/// Builds what edits change, unless a module file is to take the place of the same driver.
pub(super) fn build(
    store: &Store,
    kernel: &Kernel,
    edits: &[Edit],
    module_files: &[PathBuf],
) -> Result<Vec<EditedModule>, Failure> {
    for file in module_files {
        let name = module_name(file);
        if let Some(edit) = edits.iter().find(|edit| edit.driver == name) {
            let message = format!("both {} and the edit {} are to replace {name}", file.display(), edit.name);
            return Err(Failure::Usage(message, "give one of them".into()));
        }
    }
    Ok(build_modules(store, kernel, edits)?)
}

/// What the kernel calls the module in a file.
pub(super) fn module_name(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.split(".ko").next().unwrap_or_default().replace('-', "_")
}

/// Where the project's own edits are: in the directory where the program runs, or where it was built.
fn scenarios() -> PathBuf {
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let here = PathBuf::from("scenarios");
    if here.is_dir() { here } else { built_in }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_projects_edits_are_well_formed_and_found_by_name() {
        let directory = scenarios().join("edits");
        let mut count = 0;
        for entry in directory.read_dir().unwrap().flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            let Some(name) = file.strip_suffix(".toml") else { continue };
            let edits = load(&[name.to_owned()]).unwrap();
            assert_eq!(edits[0].name, name);
            assert!(!edits[0].description.is_empty());
            count += 1;
        }
        assert!(count >= 5);
    }

    #[test]
    fn edits_of_different_drivers_are_not_one_module() {
        let edits = load(&["gve-keep-jumbo-header".into(), "vxlan-tso-512k".into()]).unwrap();
        assert_eq!(driver(None, &edits[..1]).unwrap().as_deref(), Some("gve"));
        assert!(driver(None, &edits).unwrap_err().to_string().contains("an edit of vxlan, not of gve"));
        assert!(driver(Some("mana"), &edits[..1]).is_err());
        assert_eq!(driver(None, &[]).unwrap(), None);
    }
}

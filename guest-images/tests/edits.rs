//! Edits that are built: source, headers and compiler from the Debian mirror.
//!
//! These tests fetch packages, so they run only when asked for:
//! `cargo test -p guest-images --test edits -- --ignored`. `NICVISOR_TEST_KERNEL` names another kernel.

use std::{fs, path::PathBuf};

use guest_images::{
    ImageError, InitramfsOptions, Kernel, Store, StoreOptions,
    edit::{Edit, EditedModule, build_module, build_modules},
};

fn kernel() -> (Store, Kernel) {
    let store = Store::open(StoreOptions::default()).unwrap();
    let name = std::env::var("NICVISOR_TEST_KERNEL").unwrap_or_else(|_| "debian:6.12".to_owned());
    let kernel = store.kernel(&name.parse().unwrap()).unwrap();
    (store, kernel)
}

/// An edit of gve for any kernel, of which only the operation is given.
fn build(operation: &str) -> Result<EditedModule, ImageError> {
    let (store, kernel) = kernel();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("an-edit.toml");
    let head = "description = 'x'\ndriver = 'gve'\nkernels = ['6.1', '6.12', '7.3']\n";
    fs::write(&path, format!("{head}[[operation]]\nfile = 'gve_main.c'\n{operation}")).unwrap();
    build_module(&store, &kernel, "gve", &[Edit::load(&path).unwrap()])
}

#[test]
#[ignore = "fetches packages"]
fn an_edited_module_is_for_this_kernel_and_not_the_stock_one() {
    let (store, kernel) = kernel();
    let plain = build_module(&store, &kernel, "gve", &[]).unwrap();
    let edited =
        build("insert_before = 'module_pci_driver(gve_driver);'\ntext = 'MODULE_INFO(edited, \"yes\");'")
            .unwrap();
    assert_ne!(plain.sha256, edited.sha256);
    assert_eq!((edited.driver.as_str(), edited.release.as_str()), ("gve", kernel.release.as_str()));
    // The initramfs refuses modules of another kernel or configuration.
    let options = InitramfsOptions { module_files: vec![edited.path.clone()], ..InitramfsOptions::default() };
    let initramfs = store.initramfs(&kernel, &options).unwrap();
    assert_eq!(initramfs.modules["gve"], edited.sha256);
}

#[test]
#[ignore = "fetches packages"]
fn what_does_not_match_or_does_not_build_is_told_with_its_place() {
    let message = |operation: &str| build(operation).unwrap_err().to_string();
    let missing = message("delete = 'int nothing;'");
    assert!(missing.contains("an-edit.toml:4: gve_main.c: there is no line `int nothing;`"), "{missing}");
    let twice = message("delete = 'return 0;'");
    assert!(twice.contains("return 0;") && twice.contains(" times, at lines "), "{twice}");
    let broken = message("insert_before = 'module_pci_driver(gve_driver);'\ntext = 'int broken = ;'");
    assert!(broken.contains("does not build with an-edit") && broken.contains("gve_main.c:"), "{broken}");
    assert!(broken.contains("int broken = ;"), "{broken}");
}

#[test]
#[ignore = "fetches packages"]
fn the_projects_edits_build_alone_and_together() {
    let (store, kernel) = kernel();
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../scenarios/edits");
    let mut edits: Vec<Edit> = Vec::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        if entry.path().extension().is_some_and(|suffix| suffix == "toml") {
            let edit = Edit::load(&entry.path()).unwrap();
            if edit.is_for(kernel.version.split('-').next().unwrap()) {
                build_modules(&store, &kernel, std::slice::from_ref(&edit)).unwrap();
                edits.push(edit);
            }
        }
    }
    let together = build_modules(&store, &kernel, &edits).unwrap();
    assert_eq!(together.iter().map(|module| module.edits.len()).sum::<usize>(), edits.len());
}

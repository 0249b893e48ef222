//! A kernel's modules: finding them, what they need, and replacing them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::{ImageError, Kernel, Origin, compression, elf};

/// All modules of a kernel, by the names that the kernel gives them.
pub(crate) struct Modules {
    root: PathBuf,
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
}

/// A module that has been read.
#[derive(Debug)]
pub(crate) struct Module {
    /// Where it goes below `/lib/modules/RELEASE`.
    pub(crate) path: String,
    pub(crate) contents: Vec<u8>,
    pub(crate) information: Information,
}

/// What a module says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Information {
    pub(crate) vermagic: String,
    pub(crate) depends: Vec<String>,
    pub(crate) aliases: Vec<String>,
    pub(crate) softdeps: Vec<String>,
}

impl Modules {
    /// Lists a kernel's modules.
    pub(crate) fn open(kernel: &Kernel) -> Result<Modules, ImageError> {
        let mut modules = Modules { root: PathBuf::new(), files: BTreeMap::new(), builtin: BTreeSet::new() };
        let Some(root) = &kernel.modules else {
            return Ok(modules);
        };
        modules.root.clone_from(root);
        if kernel.origin == Origin::Build {
            // Walking a source tree takes long; the build has left a list.
            let order = read_text(&root.join("modules.order"))?;
            let objects = order.lines().map(|line| Path::new(line).with_extension("ko"));
            modules.files = objects.map(|file| (name_of(&file), root.join(file))).collect();
        } else {
            modules.walk(&root.clone())?;
        }
        if let Ok(builtin) = fs::read_to_string(root.join("modules.builtin")) {
            modules.builtin = builtin.lines().map(|line| name_of(Path::new(line))).collect();
        }
        Ok(modules)
    }

    /// Whether the kernel has it built in.
    pub(crate) fn is_builtin(&self, name: &str) -> bool {
        self.builtin.contains(&normalise(name))
    }

    /// The kernel's own list of what is built in, for the guest.
    pub(crate) fn builtin_list(&self) -> Option<Vec<u8>> {
        fs::read(self.root.join("modules.builtin")).ok()
    }

    /// Reads modules and all that they need, by name. `replacements` take the place of stock ones. Modules in
    /// `optional` may be missing or built in.
    pub(crate) fn collect(
        &self,
        required: &[String],
        optional: &[&str],
        replacements: BTreeMap<String, Module>,
    ) -> Result<BTreeMap<String, Module>, ImageError> {
        let mut collected = BTreeMap::new();
        let mut wanted: Vec<String> = replacements.keys().cloned().collect();
        for name in required {
            let name = normalise(name);
            if self.files.contains_key(&name) || replacements.contains_key(&name) {
                wanted.push(name);
            } else if !self.is_builtin(&name) {
                return Err(bad(&name, "this kernel has no such module"));
            }
        }
        let present =
            optional.iter().map(|name| normalise(name)).filter(|name| self.files.contains_key(name));
        wanted.extend(present);
        let mut replacements = replacements;
        while let Some(name) = wanted.pop() {
            if collected.contains_key(&name) {
                continue;
            }
            let module = match replacements.remove(&name) {
                Some(replacement) => replacement,
                None => self.read(&name)?,
            };
            for need in &module.information.depends {
                if self.files.contains_key(need) || replacements.contains_key(need) {
                    wanted.push(need.clone());
                } else if !self.is_builtin(need) && !collected.contains_key(need) {
                    return Err(bad(
                        &name,
                        format!("it needs module {need}, which this kernel does not have"),
                    ));
                }
            }
            collected.insert(name, module);
        }
        Ok(collected)
    }

    /// Reads a module that a user gives, and checks that it is for this kernel.
    pub(crate) fn replacement(&self, file: &Path, release: &str) -> Result<(String, Module), ImageError> {
        let shown = file.display().to_string();
        let contents = compression::read(file).map_err(|error| bad(&shown, error.to_string()))?;
        let information = inspect(&shown, &contents)?;
        if information.vermagic.is_empty() {
            return Err(bad(&shown, "not a kernel module: it names no kernel version (vermagic)"));
        }
        let built_for = information.vermagic.split(' ').next().unwrap_or_default();
        if built_for != release {
            return Err(bad(&shown, format!("it was built for kernel {built_for}, not for {release}")));
        }
        let name = name_of(file);
        let stock = match self.files.get(&name) {
            Some(stock) => Some(self.read(&name).map(|module| (stock, module))?),
            None => None,
        };
        if let Some((_, stock)) = &stock
            && stock.information.vermagic.trim() != information.vermagic.trim()
        {
            return Err(bad(
                &shown,
                format!(
                    "it was built with another configuration ({:?}) than this kernel ({:?})",
                    information.vermagic.trim(),
                    stock.information.vermagic.trim()
                ),
            ));
        }
        let path = stock.map_or_else(|| format!("updates/{name}.ko"), |(_, stock)| stock.path);
        Ok((name, Module { path, contents, information }))
    }

    fn read(&self, name: &str) -> Result<Module, ImageError> {
        let file = &self.files[name];
        let contents =
            compression::read(file).map_err(|error| bad(&file.display().to_string(), error.to_string()))?;
        let information = inspect(name, &contents)?;
        let relative = file.strip_prefix(&self.root).unwrap_or(file);
        let directory = relative.parent().unwrap_or(Path::new(""));
        let directory = if directory.starts_with("kernel") || directory.starts_with("updates") {
            directory.to_owned()
        } else {
            Path::new("kernel").join(directory)
        };
        let path = directory.join(format!("{}.ko", stem(file))).display().to_string();
        Ok(Module { path, contents, information })
    }

    fn walk(&mut self, directory: &Path) -> Result<(), ImageError> {
        let entries = fs::read_dir(directory).map_err(ImageError::cache(directory))?;
        for entry in entries {
            let entry = entry.map_err(ImageError::cache(directory))?;
            let path = entry.path();
            // `build` and `source` are links out of the tree.
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                self.walk(&path)?;
            } else if is_module(&path) {
                self.files.insert(name_of(&path), path);
            }
        }
        Ok(())
    }
}

/// The files that each module needs, in the order of `modules.dep`: what has to be loaded last comes first.
pub(crate) fn dependencies(modules: &BTreeMap<String, Module>) -> BTreeMap<&str, Vec<&str>> {
    fn visit<'a>(modules: &'a BTreeMap<String, Module>, name: &str, order: &mut Vec<&'a str>) {
        for need in modules.get(name).into_iter().flat_map(|module| &module.information.depends) {
            if let Some(module) = modules.get(need)
                && !order.contains(&module.path.as_str())
            {
                visit(modules, need, order);
                order.push(&module.path);
            }
        }
    }
    modules
        .iter()
        .map(|(name, module)| {
            let mut order = Vec::new();
            visit(modules, name, &mut order);
            order.reverse();
            (module.path.as_str(), order)
        })
        .collect()
}

/// The name that the kernel gives to what is written with `-` as often as with `_`.
pub(crate) fn normalise(name: &str) -> String {
    name.replace('-', "_")
}

fn inspect(name: &str, contents: &[u8]) -> Result<Information, ImageError> {
    if !elf::is_x86_64(contents) {
        return Err(bad(name, "not a kernel module for x86-64"));
    }
    let strings = elf::modinfo(contents).map_err(|error| bad(name, format!("a damaged module: {error}")))?;
    let mut information = Information::default();
    for (key, value) in strings {
        match key.as_str() {
            "vermagic" => information.vermagic = value,
            "depends" => {
                information.depends =
                    value.split(',').filter(|need| !need.is_empty()).map(normalise).collect()
            }
            "alias" => information.aliases.push(value),
            "softdep" => information.softdeps.push(value),
            _ => {}
        }
    }
    Ok(information)
}

fn is_module(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    compression::MODULE_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.split_once(".ko").map_or(name.clone(), |(stem, _)| stem.to_owned())
}

fn name_of(path: &Path) -> String {
    normalise(&stem(path))
}

fn read_text(path: &Path) -> Result<String, ImageError> {
    fs::read_to_string(path).map_err(|source| ImageError::BadFile { path: path.to_owned(), source })
}

fn bad(module: &str, reason: impl Into<String>) -> ImageError {
    ImageError::BadModule { module: module.to_owned(), reason: reason.into() }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn module(path: &str, depends: &[&str]) -> (String, Module) {
        let information = Information {
            depends: depends.iter().map(|name| (*name).to_owned()).collect(),
            ..Information::default()
        };
        (name_of(Path::new(path)), Module { path: path.to_owned(), contents: Vec::new(), information })
    }

    #[test]
    fn dependencies_are_listed_with_the_deepest_last() {
        let modules = BTreeMap::from([
            module("kernel/a.ko", &["b", "c"]),
            module("kernel/b.ko", &["d"]),
            module("kernel/c.ko", &["d"]),
            module("kernel/d.ko", &[]),
        ]);
        let dependencies = dependencies(&modules);
        assert_eq!(dependencies["kernel/d.ko"], Vec::<&str>::new());
        assert_eq!(dependencies["kernel/b.ko"], ["kernel/d.ko"]);
        let all = &dependencies["kernel/a.ko"];
        let place = |name: &str| all.iter().position(|need| *need == name).unwrap();
        assert_eq!(all.len(), 3);
        assert!(place("kernel/b.ko") < place("kernel/d.ko") && place("kernel/c.ko") < place("kernel/d.ko"));
    }

    #[test]
    fn what_is_no_module_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gve.ko");
        fs::write(&file, "#!/bin/sh").unwrap();
        let modules = Modules { root: PathBuf::new(), files: BTreeMap::new(), builtin: BTreeSet::new() };
        let error = modules.replacement(&file, "6.12").unwrap_err();
        assert!(error.to_string().contains("not a kernel module"), "{error}");
        assert!(!error.is_environment());
        let error = modules.collect(&["nonesuch".to_owned()], &[], BTreeMap::new()).unwrap_err();
        assert!(error.to_string().contains("no such module"), "{error}");
    }
}

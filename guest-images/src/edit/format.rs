//! The edit file.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use toml::Spanned;

use super::{
    drivers::{self, Driver},
    lines::{self, Change, Target},
};
use crate::{ImageError, cache, name::DebianVersion};

/// An edit that has been read and found well-formed. Whether it matches is known only with a source.
#[derive(Clone, Debug)]
pub struct Edit {
    /// Its name: what the file says, or the file's name without `.toml`.
    pub name: String,
    /// What it does, in a sentence.
    pub description: String,
    /// The driver that it changes, by the name of its module.
    pub driver: String,
    /// The file that it was read from.
    pub path: PathBuf,
    /// The hash of all that was read.
    sha256: String,
    kernels: Vec<DebianVersion>,
    operations: Vec<Operation>,
}

/// One change of one file.
#[derive(Clone, Debug)]
struct Operation {
    /// The edit file that has it and the line where it starts, for messages.
    place: (PathBuf, usize),
    /// Relative to the driver's directory, or a header below `include/`.
    file: String,
    within: Option<String>,
    kernels: Vec<DebianVersion>,
    change: Change,
}

impl Edit {
    /// Reads an edit file.
    ///
    /// # Errors
    /// When the file cannot be read or is not an edit; the message names the line.
    pub fn load(path: &Path) -> Result<Edit, ImageError> {
        load(path, &mut Vec::new())
    }

    /// Reads the edit that something in `directory` names: `gve-keep-jumbo-header` is the file of that name and
    /// `.toml` in its subdirectory `edits`; anything ending with `.toml` is a path from `directory`.
    ///
    /// # Errors
    /// As [`Edit::load`].
    pub fn named(name: &str, directory: &Path) -> Result<Edit, ImageError> {
        if name.ends_with(".toml") {
            return Edit::load(&directory.join(name));
        }
        Edit::load(&directory.join("edits").join(format!("{name}.toml")))
    }

    /// Whether the edit is meant for a kernel of this version, such as `6.12.117`.
    pub fn is_for(&self, version: &str) -> bool {
        self.kernels.iter().any(|kernel| kernel.matches(version))
    }

    /// The kernels that it is meant for, as the file names them.
    pub fn kernels(&self) -> impl Iterator<Item = String> {
        self.kernels.iter().map(DebianVersion::to_string)
    }

    /// The SHA-256 of the file, and of what it undoes.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Changes the files of a driver, as they are for a kernel of this version. `read` fetches a file that is not
    /// in `files` yet.
    pub(super) fn apply(
        &self,
        version: &str,
        files: &mut BTreeMap<String, String>,
        read: impl Fn(&str) -> Result<String, String>,
    ) -> Result<(), ImageError> {
        if !self.is_for(version) {
            let kernels = self.kernels().collect::<Vec<_>>().join(", ");
            return Err(self.wrong(format!("it is for kernel {kernels}, and this one is {version}")));
        }
        let mut done = 0;
        for operation in &self.operations {
            if operation.kernels.is_empty() || operation.kernels.iter().any(|kernel| kernel.matches(version))
            {
                operation.apply(files, &read)?;
                done += 1;
            }
        }
        match done {
            0 => Err(self.wrong(format!("none of its operations is for kernel {version}"))),
            _ => Ok(()),
        }
    }

    /// An error about the edit as a whole.
    pub(super) fn wrong(&self, reason: String) -> ImageError {
        ImageError::BadEdit { path: self.path.clone(), line: None, reason }
    }
}

impl Operation {
    fn apply(
        &self,
        files: &mut BTreeMap<String, String>,
        read: impl Fn(&str) -> Result<String, String>,
    ) -> Result<(), ImageError> {
        let wrong = |reason: String| ImageError::BadEdit {
            path: self.place.0.clone(),
            line: Some(self.place.1),
            reason: format!("{}: {reason}", self.file),
        };
        let source = match files.get(&self.file) {
            Some(source) => source.clone(),
            None => read(&self.file).map_err(wrong)?,
        };
        let changed = lines::apply(&source, self.within.as_deref(), &self.change).map_err(wrong)?;
        files.insert(self.file.clone(), changed);
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEdit {
    name: Option<String>,
    description: String,
    driver: Spanned<String>,
    kernels: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    undo: Vec<Spanned<String>>,
    #[serde(default, rename = "operation")]
    operations: Vec<Spanned<RawOperation>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOperation {
    file: String,
    within: Option<String>,
    #[serde(default)]
    kernels: Vec<Spanned<String>>,
    insert_after: Option<String>,
    insert_before: Option<String>,
    replace: Option<String>,
    delete: Option<String>,
    through: Option<String>,
    text: Option<String>,
}

/// `above` are the files that want this one undone.
fn load(path: &Path, above: &mut Vec<PathBuf>) -> Result<Edit, ImageError> {
    let text =
        fs::read_to_string(path).map_err(|source| ImageError::BadFile { path: path.to_owned(), source })?;
    let file = File { path, text: &text };
    let raw: RawEdit = toml::from_str(&text)
        .map_err(|error| file.wrong(error.span().map_or(0, |span| span.start), error.message().to_owned()))?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut edit = Edit {
        name: raw.name.unwrap_or(stem),
        description: raw.description.trim().to_owned(),
        driver: file.driver(&raw.driver)?.name.to_owned(),
        path: path.to_owned(),
        sha256: cache::sha256(text.as_bytes()),
        kernels: file.versions(raw.kernels.get_ref())?,
        operations: Vec::new(),
    };
    if edit.kernels.is_empty() {
        return Err(
            file.wrong(raw.kernels.span().start, "name the kernels that it is for, such as \"6.12\"".into())
        );
    }
    for name in &raw.undo {
        file.undo(name, &mut edit, above)?;
    }
    for operation in raw.operations {
        edit.operations.push(file.operation(operation)?);
    }
    if edit.operations.is_empty() {
        return Err(file.wrong(0, "it changes nothing: give it an [[operation]] or something to undo".into()));
    }
    Ok(edit)
}

/// An edit file that is being read.
struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    fn driver(&self, name: &Spanned<String>) -> Result<&'static Driver, ImageError> {
        Driver::find(name.get_ref()).ok_or_else(|| {
            let known = drivers::known().collect::<Vec<_>>().join(", ");
            let reason = format!("{} is not a driver that can be edited; these are: {known}", name.get_ref());
            self.wrong(name.span().start, reason)
        })
    }

    fn versions(&self, names: &[Spanned<String>]) -> Result<Vec<DebianVersion>, ImageError> {
        let parse = |name: &Spanned<String>| {
            DebianVersion::parse(name.get_ref()).ok_or_else(|| {
                let reason =
                    format!("{:?} is not a kernel version, such as 6.12 or 6.12.117", name.get_ref());
                self.wrong(name.span().start, reason)
            })
        };
        names.iter().map(parse).collect()
    }

    /// Takes in the operations of another edit, each turned round, the last one first.
    fn undo(
        &self,
        name: &Spanned<String>,
        edit: &mut Edit,
        above: &mut Vec<PathBuf>,
    ) -> Result<(), ImageError> {
        let wrong = |reason: String| self.wrong(name.span().start, reason);
        let path = self.path.with_file_name(format!("{}.toml", name.get_ref()));
        above.push(self.path.to_owned());
        if above.contains(&path) {
            return Err(wrong(format!("{} undoes itself", name.get_ref())));
        }
        let other = load(&path, above)?;
        above.pop();
        if other.driver != edit.driver {
            return Err(wrong(format!("{} is an edit of {}", name.get_ref(), other.driver)));
        }
        for operation in other.operations.into_iter().rev() {
            let change = operation.change.undone().map_err(|reason| {
                wrong(format!(
                    "{} cannot be undone: its operation at line {} {reason}",
                    name.get_ref(),
                    operation.place.1
                ))
            })?;
            edit.operations.push(Operation { change, ..operation });
        }
        edit.sha256 = cache::sha256(format!("{} {}", edit.sha256, other.sha256).as_bytes());
        Ok(())
    }

    fn operation(&self, raw: Spanned<RawOperation>) -> Result<Operation, ImageError> {
        let start = raw.span().start;
        let raw = raw.into_inner();
        let file = raw.file.clone();
        if file.split('/').any(|part| part.is_empty() || part == "..") {
            let reason = format!(
                "{file:?} is not a file of the driver: name it from the driver's directory, or a header from include/"
            );
            return Err(self.wrong(start, reason));
        }
        Ok(Operation {
            place: (self.path.to_owned(), self.line(start)),
            file,
            within: raw.within.clone(),
            kernels: self.versions(&raw.kernels)?,
            change: change(raw).map_err(|reason| self.wrong(start, reason))?,
        })
    }

    fn wrong(&self, offset: usize, reason: String) -> ImageError {
        ImageError::BadEdit { path: self.path.to_owned(), line: Some(self.line(offset)), reason }
    }

    fn line(&self, offset: usize) -> usize {
        self.text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
    }
}

fn change(raw: RawOperation) -> Result<Change, String> {
    let given = [
        ("insert_after", &raw.insert_after),
        ("insert_before", &raw.insert_before),
        ("replace", &raw.replace),
        ("delete", &raw.delete),
    ];
    let mut given = given.into_iter().filter_map(|(kind, lines)| Some((kind, lines.clone()?)));
    let one = "an operation has exactly one of insert_after, insert_before, replace and delete";
    let (kind, lines) = given.next().ok_or(one)?;
    if given.next().is_some() {
        return Err(one.into());
    }
    for (key, lines) in [(kind, Some(&lines)), ("through", raw.through.as_ref())] {
        if lines.is_some_and(|lines| lines.trim().is_empty()) {
            return Err(format!("{key} is empty: give it the lines to look for"));
        }
    }
    if kind == "delete" && raw.text.is_some() {
        return Err("delete takes no text; to put something else there, use replace".into());
    }
    if kind.starts_with("insert") && raw.through.is_some() {
        return Err(format!("{kind} takes no through: it goes to one place"));
    }
    let target = |through| Target { lines: lines.clone(), through };
    if kind == "delete" {
        return Ok(Change::Delete { target: target(raw.through) });
    }
    let text = raw
        .text
        .filter(|text| !text.trim().is_empty())
        .ok_or_else(|| format!("{kind} needs text: the lines to put there"))?;
    Ok(match kind {
        "insert_after" => Change::InsertAfter { lines, text },
        "insert_before" => Change::InsertBefore { lines, text },
        _ => Change::Replace { target: target(raw.through), text },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "description = 'x'\ndriver = 'gve'\nkernels = ['6.12']\n";

    fn read(text: &str) -> Result<Edit, ImageError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("some-edit.toml");
        fs::write(&path, text).unwrap();
        Edit::load(&path)
    }

    #[track_caller]
    fn refused(text: &str, line: usize, words: &str) {
        let error = read(text).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains(&format!("some-edit.toml:{line}: ")) && message.contains(words),
            "{message}"
        );
        assert!(!error.is_environment());
    }

    #[test]
    fn an_edit_is_named_after_its_file_and_applied_for_its_kernels_only() {
        let text = format!(
            "{HEAD}[[operation]]\nfile = 'a.c'\nreplace = 'one();'\ntext = 'two();'\n\
            [[operation]]\nfile = 'a.c'\nkernels = ['6.12.107']\ndelete = 'two();'\n"
        );
        let edit = read(&text).unwrap();
        assert_eq!((edit.name.as_str(), edit.driver.as_str()), ("some-edit", "gve"));
        let source = |_: &str| Ok("\tone();\n".to_owned());
        let mut files = BTreeMap::new();
        edit.apply("6.12.117", &mut files, source).unwrap();
        assert_eq!(files["a.c"], "two();\n");
        files.clear();
        edit.apply("6.12.107", &mut files, source).unwrap();
        assert_eq!(files["a.c"], "");
        let message = edit.apply("7.3.4", &mut files, source).unwrap_err().to_string();
        assert!(message.contains("it is for kernel 6.12, and this one is 7.3.4"), "{message}");
    }

    #[test]
    fn an_operation_that_does_not_match_names_edit_line_and_file() {
        let edit = read(&format!("{HEAD}\n[[operation]]\nfile = 'a.c'\ndelete = 'three();'\n")).unwrap();
        let error = edit.apply("6.12.1", &mut BTreeMap::new(), |_| Ok("\tone();\n".to_owned())).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("some-edit.toml:5: a.c: there is no line `three();`"), "{message}");
        let error = edit.apply("6.12.1", &mut BTreeMap::new(), |_| Err("no such file".into())).unwrap_err();
        assert!(error.to_string().contains("a.c: no such file"), "{error}");
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        refused("description = 'x'\ndriver = 'e1000'\nkernels = ['6.12']\n", 2, "these are: gve, mana");
        refused("description = 'x'\ndriver = 'gve'\nkernels = ['new']\n", 3, "not a kernel version");
        refused("description = 'x'\ndriver = 'gve'\nkernels = []\n", 3, "name the kernels");
        refused(HEAD, 1, "changes nothing");
        refused(&format!("{HEAD}speed = 3\n"), 4, "speed");
        let operation = |rest: &str| format!("{HEAD}\n[[operation]]\nfile = 'a.c'\n{rest}");
        refused(&operation(""), 5, "exactly one");
        refused(&operation("delete = 'a'\nreplace = 'b'\ntext = 'c'"), 5, "exactly one");
        refused(&operation("replace = 'b'"), 5, "replace needs text");
        refused(&operation("delete = 'b'\ntext = 'c'"), 5, "use replace");
        refused(&operation("insert_after = 'b'\ntext = 'c'\nthrough = 'd'"), 5, "takes no through");
        refused(&operation("delete = ' '"), 5, "delete is empty");
        refused(&operation("delete = 'a'\nthrough = ''"), 5, "through is empty");
        refused(
            &format!("{HEAD}\n[[operation]]\nfile = '../x.c'\ndelete = 'b'"),
            5,
            "not a file of the driver",
        );
    }

    #[test]
    fn an_edit_can_be_undone_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(format!("{name}.toml"));
        let write = |name: &str, text: String| fs::write(path(name), text).unwrap();
        write(
            "add",
            format!("{HEAD}[[operation]]\nfile = 'a.c'\ninsert_after = 'one();'\ntext = 'two();'\n"),
        );
        write("remove", "description = 'x'\ndriver = 'gve'\nkernels = ['7.3']\nundo = ['add']\n".into());
        let edit = Edit::load(&path("remove")).unwrap();
        let mut files = BTreeMap::new();
        edit.apply("7.3.4", &mut files, |_| Ok("\tone();\n\ttwo();\n".to_owned())).unwrap();
        assert_eq!(files["a.c"], "\tone();\n");
        write("loop", format!("{HEAD}undo = ['loop']\n"));
        assert!(Edit::load(&path("loop")).unwrap_err().to_string().contains("undoes itself"));
        write("gone", format!("{HEAD}[[operation]]\nfile = 'a.c'\ndelete = 'one();'\n"));
        write("back", format!("{HEAD}undo = ['gone']\n"));
        let message = Edit::load(&path("back")).unwrap_err().to_string();
        assert!(message.contains("back.toml:4: gone cannot be undone"), "{message}");
    }
}

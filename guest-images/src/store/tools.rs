//! The guest's programs in the store.

use std::{fs, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{Store, TOOLS, forget, read_json, to_json};
use crate::{
    ImageError,
    apt::{self, Suite},
    cache, tools,
};

impl Store {
    /// The directory with the guest's programs: from the cache, or fetched.
    pub(super) fn tools(&self) -> Result<PathBuf, ImageError> {
        if let Some(tools) = self.known_tools() {
            return Ok(tools);
        }
        let lock = self.cache.lock(self.progress)?;
        if let Some(tools) = self.known_tools() {
            return Ok(tools);
        }
        let apt = self.apt(Suite::Trixie)?;
        let wanted: Vec<_> =
            apt.closure(tools::PACKAGES)?.into_iter().filter(|(name, _)| tools::is_needed(name)).collect();
        let (fetched, records) = self.download(&apt, &wanted, "fetching the guest's tools")?;
        let workspace = self.cache.workspace(&lock)?;
        let mut unpacked = Vec::new();
        for package in &fetched {
            let directory = workspace.path().join("packages").join(&package.name);
            apt::unpack(&package.file, &directory)?;
            unpacked.push(directory);
        }
        let entry = cache::sha256(&to_json(&(tools::layout(), &records)))[..16].to_owned();
        let finished = workspace.path().join("tools");
        let root = finished.join("root");
        fs::create_dir_all(&root).map_err(ImageError::cache(&root))?;
        tools::assemble(&unpacked, &root)?;
        fs::write(finished.join("packages.json"), to_json(&records)).map_err(ImageError::cache(&finished))?;
        self.cache.publish(&lock, &finished, &self.cache.path(TOOLS).join(&entry))?;
        let record = ToolsRecord { format: tools::layout(), directory: entry };
        self.cache.write(&lock, &self.cache.path(TOOLS_RECORD), &to_json(&record))?;
        forget(&fetched);
        self.known_tools().ok_or_else(|| ImageError::BadPackage {
            package: "the guest's tools".to_owned(),
            reason: "they were unpacked, and are not there".to_owned(),
        })
    }

    fn known_tools(&self) -> Option<PathBuf> {
        let record: ToolsRecord = read_json(&self.cache.path(TOOLS_RECORD))?;
        let directory = self.cache.path(TOOLS).join(record.directory);
        let root = directory.join("root");
        (record.format == tools::layout() && self.uses.hold(&directory) && root.is_dir()).then_some(root)
    }
}

#[derive(Serialize, Deserialize)]
struct ToolsRecord {
    format: String,
    directory: String,
}

const TOOLS_RECORD: &str = "tools.json";

//! The files of a workspace, read once.

use std::fs;
use std::io;
use std::path::Path;

use super::source::Source;

/// Folders that hold nothing of ours.
const FOREIGN: &[&str] = &["target", "node_modules"];

pub(super) struct Tree {
    /// Names of the folders at the top.
    pub(super) top_folders: Vec<String>,
    /// Paths of all files, from the root on, with `/`.
    pub(super) paths: Vec<String>,
    /// The Rust files among them.
    pub(super) sources: Vec<Source>,
    /// The manifests among them, with their text.
    pub(super) manifests: Vec<(String, String)>,
    /// The files in which a test may wait by sleeping between two looks at a condition.
    pub(super) waits: Option<String>,
}

/// Where [`Tree::waits`] are listed.
pub(super) const WAITS: &str = "crates/xtask/waits.txt";

impl Tree {
    pub(super) fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree {
            top_folders: Vec::new(),
            paths: Vec::new(),
            sources: Vec::new(),
            manifests: Vec::new(),
            waits: None,
        };
        tree.read_folder(root, "")?;
        for path in &tree.paths {
            let text = || fs::read_to_string(root.join(path));
            if path.ends_with(".rs") {
                tree.sources.push(Source::new(path.clone(), &text()?));
            } else if path == "Cargo.toml" || path.ends_with("/Cargo.toml") {
                tree.manifests.push((path.clone(), text()?));
            } else if path == WAITS {
                tree.waits = Some(text()?);
            }
        }
        Ok(tree)
    }

    /// Goes through a folder, in the order of names. Hidden files and folders belong to tools.
    fn read_folder(&mut self, root: &Path, folder: &str) -> io::Result<()> {
        let mut entries: Vec<(String, bool)> = Vec::new();
        for entry in fs::read_dir(root.join(folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            entries.push((name, entry.file_type()?.is_dir()));
        }
        entries.sort();
        for (name, is_folder) in entries {
            if name.starts_with('.') || FOREIGN.contains(&name.as_str()) {
                continue;
            }
            let path = if folder.is_empty() {
                name.clone()
            } else {
                format!("{folder}/{name}")
            };
            if !is_folder {
                self.paths.push(path);
                continue;
            }
            if folder.is_empty() {
                self.top_folders.push(name);
            }
            self.read_folder(root, &path)?;
        }
        Ok(())
    }
}

//! The rules together.

use std::path::Path;

use crate::finding::Finding;
use crate::layers::Layers;
use crate::tree::Tree;
use crate::workspace::Workspace;
use crate::{arrows, circles, codes, dead_files, lines, modules, options, rooms};

/// Every finding, by path and line. Fails if a table of rules is wrong.
pub(crate) fn check(tree: &Tree, workspace: &Workspace) -> anyhow::Result<Vec<Finding>> {
    let layers = Layers::load(tree)?;
    let folders = workspace.packages.iter().flat_map(|package| {
        modules::SOURCE_FOLDERS
            .iter()
            .map(|folder| package.folder().join(folder))
    });
    let folders: Vec<_> = folders.collect();
    let (sources, mut findings) = modules::read(
        tree,
        &folders.iter().map(AsRef::as_ref).collect::<Vec<&Path>>(),
    );
    findings.extend(arrows::check(tree, workspace, &layers));
    findings.extend(circles::check(&sources, workspace, &layers));
    findings.extend(codes::check(tree));
    findings.extend(dead_files::check(&sources, workspace));
    findings.extend(lines::check(
        tree,
        &tree.text(Path::new("xtask/lines.toml")).unwrap_or_default(),
    )?);
    findings.extend(options::check(tree));
    findings.extend(rooms::check(&sources, &layers));
    findings.extend(rooms::check_protocol(&sources, &layers));
    findings.sort();
    Ok(findings)
}

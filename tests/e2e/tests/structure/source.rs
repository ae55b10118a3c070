//! Reads a crate's files: what each imports, which fields it shows, and what its comments say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, Fields, Item, ItemStruct, ItemUse, UseTree, Visibility};

/// The sources of one crate, without tests.
pub(crate) struct Crate {
    pub(crate) files: Vec<File>,
}

/// One file.
pub(crate) struct File {
    /// Path below `src`.
    pub(crate) name: String,
    text: String,
    syntax: syn::File,
    /// Types of these names are the crate's interface.
    exported: BTreeSet<String>,
}

impl Crate {
    pub(crate) fn read(name: &str) -> Self {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates").join(name).join("src");
        let mut paths = Vec::new();
        list(&root, &mut paths);
        paths.sort();
        let read = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).expect("a source file");
            let mut syntax = syn::parse_file(&text).expect("it compiles");
            syntax.items.retain(|item| !is_test(item));
            let name = path.strip_prefix(&root).expect("below it").to_string_lossy().into_owned();
            File { name, text, syntax, exported: BTreeSet::new() }
        };
        // A file of nothing but tests stands under a `mod` with an attribute that says so.
        let is_tests = |path: &&PathBuf| path.file_stem().is_none_or(|stem| stem != "tests");
        let mut files: Vec<_> = paths.iter().filter(is_tests).map(read).collect();
        assert!(!files.is_empty(), "{}: no sources", root.display());
        let face = files.iter().find(|file| file.name == "lib.rs").expect("a library");
        let exported = face.exports();
        files.iter_mut().for_each(|file| file.exported.clone_from(&exported));
        Self { files }
    }

    /// The files that each file imports from.
    pub(crate) fn imports(&self) -> BTreeMap<String, BTreeSet<String>> {
        let modules: BTreeMap<_, _> =
            self.files.iter().map(|file| (file.module(), file.name.clone())).collect();
        let of = |file: &File| {
            let mut found = Paths { module: file.module(), paths: BTreeSet::new() };
            found.visit_file(&file.syntax);
            let names = found.paths.iter().filter_map(|path| {
                (0..=path.len()).rev().find_map(|length| modules.get(&path[..length]))
            });
            let names = names.filter(|name| **name != file.name);
            (file.name.clone(), names.cloned().collect())
        };
        self.files.iter().map(of).collect()
    }

    /// The text of all comments.
    pub(crate) fn comments(&self) -> String {
        let lines = self.files.iter().flat_map(|file| file.text.lines());
        let comment = |line: &str| {
            let line = line.trim_start();
            line.starts_with("//").then(|| line.trim_start_matches(['/', '!']).to_string() + "\n")
        };
        lines.filter_map(comment).collect()
    }
}

impl File {
    /// The path of its module.
    fn module(&self) -> Vec<String> {
        let path = self.name.trim_end_matches(".rs");
        let parts = path.split('/').map(String::from);
        parts.filter(|part| part != "mod" && part != "lib").collect()
    }

    /// The names that it exports.
    fn exports(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for item in &self.syntax.items {
            if let Item::Use(ItemUse { vis: Visibility::Public(_), tree, .. }) = item {
                flatten(tree, &mut Vec::new(), &mut |path| names.extend(path.last().cloned()));
            }
        }
        names
    }

    /// Whether it has methods of a type.
    pub(crate) fn implements(&self, name: &str) -> bool {
        self.syntax.items.iter().any(|item| match item {
            Item::Impl(item) if item.trait_.is_none() => match item.self_ty.as_ref() {
                syn::Type::Path(path) => path.path.segments.last().is_some_and(|s| s.ident == name),
                _ => false,
            },
            _ => false,
        })
    }

    /// Fields that files of other folders see, each as `file: Type.field`. Public fields of exported types are the
    /// crate's interface and count for nothing.
    pub(crate) fn open_fields(&self) -> Vec<String> {
        let is_root_of_folder = self.name.ends_with("mod.rs") || !self.name.contains('/');
        let is_open = |item: &ItemStruct, vis: &Visibility| match vis {
            Visibility::Inherited => false,
            Visibility::Public(_) => !self.exported.contains(&item.ident.to_string()),
            Visibility::Restricted(vis) => is_root_of_folder || !vis.path.is_ident("super"),
        };
        let structs = self.syntax.items.iter().filter_map(|item| match item {
            Item::Struct(item) => Some(item),
            _ => None,
        });
        let fields = structs.flat_map(|item| {
            let fields = match &item.fields {
                Fields::Named(fields) => fields.named.iter().collect::<Vec<_>>(),
                Fields::Unnamed(fields) => fields.unnamed.iter().collect(),
                Fields::Unit => Vec::new(),
            };
            fields.into_iter().filter(|field| is_open(item, &field.vis)).map(|field| {
                let name = field.ident.as_ref().map_or("0".into(), ToString::to_string);
                format!("{}: {}.{name}", self.name, item.ident)
            })
        });
        fields.collect()
    }
}

/// Words in lower case; what stands in backticks is code.
pub(crate) fn words(text: &str) -> impl Iterator<Item = String> {
    let prose = text.split('`').step_by(2);
    let words = prose.flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '\''));
    words.filter(|word| !word.is_empty()).map(str::to_lowercase)
}

fn list(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            list(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Whether an item is compiled for tests only.
fn is_test(item: &Item) -> bool {
    let says_so = |attributes: &[Attribute]| {
        attributes.iter().any(|attribute| {
            let syn::Meta::List(list) = &attribute.meta else { return false };
            let condition = list.tokens.to_string();
            let is_for_tests = words(&condition).any(|word| word == "test");
            attribute.path().is_ident("cfg") && is_for_tests && !condition.contains("any")
        })
    };
    match item {
        Item::Mod(item) => says_so(&item.attrs),
        Item::Fn(item) => says_so(&item.attrs),
        Item::Impl(item) => says_so(&item.attrs),
        Item::Use(item) => says_so(&item.attrs),
        _ => false,
    }
}

/// Every path of a `use` tree.
fn flatten(tree: &UseTree, before: &mut Vec<String>, show: &mut impl FnMut(&[String])) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, show);
            before.pop();
        }
        UseTree::Name(name) => {
            before.push(name.ident.to_string());
            show(before);
            before.pop();
        }
        UseTree::Rename(name) => {
            before.push(name.ident.to_string());
            show(before);
            before.pop();
        }
        UseTree::Glob(_) => show(before),
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| flatten(tree, before, show));
        }
    }
}

/// Collects the paths into its own crate that a file names.
struct Paths {
    module: Vec<String>,
    paths: BTreeSet<Vec<String>>,
}

impl Paths {
    fn note(&mut self, path: &[String]) {
        let mut base = match path.first().map(String::as_str) {
            Some("crate" | "$crate") => Vec::new(),
            Some("self") => self.module.clone(),
            Some("super") => self.module[..self.module.len().saturating_sub(1)].to_vec(),
            _ => return,
        };
        let mut rest = &path[1..];
        while let [first, others @ ..] = rest
            && first == "super"
        {
            base.pop();
            rest = others;
        }
        base.extend_from_slice(rest);
        // The last name may be of an item; what the module is, the longest match says.
        if !base.is_empty() {
            self.paths.insert(base);
        }
    }
}

impl Visit<'_> for Paths {
    fn visit_item_use(&mut self, item: &ItemUse) {
        // What is handed on is no use of it.
        if !matches!(item.vis, Visibility::Public(_)) {
            flatten(&item.tree, &mut Vec::new(), &mut |path| self.note(path));
        }
    }

    fn visit_visibility(&mut self, _: &Visibility) {
        // `pub(super)` imports nothing.
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let parts: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.note(&parts);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &syn::Macro) {
        let parts: Vec<_> = call.path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.note(&parts);
        // In what a macro is given, paths are not parsed.
        let tokens = call.tokens.to_string();
        for (at, _) in tokens.match_indices("crate ::") {
            let names = tokens[at..].split("::").map(str::trim);
            let is_name = |name: &&str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
            let path: Vec<_> = names
                .map_while(|name| Some(name.split([' ', '(']).next()?).filter(is_name))
                .map(String::from)
                .collect();
            self.note(&path);
        }
    }
}

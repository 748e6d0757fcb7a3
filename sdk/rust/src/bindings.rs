//! What `wit-bindgen` makes of `wit/`; nothing else, and nothing that an author sees.

#![allow(unsafe_code, missing_docs, clippy::all)]

wit_bindgen::generate!({
    world: "plugin",
    path: "../../wit",
    // Edits and answers are handed over as borrowed slices.
    ownership: Borrowing { duplicate_if_necessary: true },
    pub_export_macro: true,
    export_macro_name: "export_hooks",
    default_bindings_module: "weir_sdk::bindings",
});

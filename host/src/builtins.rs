//! The plugins that come with the gateway, as `build.rs` has built them.

/// A plugin that is always there, unless a module of that name replaces it.
#[derive(Debug)]
pub struct Builtin {
    pub name: &'static str,
    /// The component.
    pub bytes: &'static [u8],
}

/// All of them, sorted by name.
pub fn all() -> &'static [Builtin] {
    BUILTINS
}

pub fn find(name: &str) -> Option<&'static Builtin> {
    let at = BUILTINS.binary_search_by_key(&name, |builtin| builtin.name).ok()?;
    BUILTINS.get(at)
}

include!(concat!(env!("OUT_DIR"), "/builtins.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_builtin_is_found_by_its_name() {
        for builtin in all() {
            assert_eq!(find(builtin.name).map(|found| found.name), Some(builtin.name));
            // Magic, then the version and layer of a component.
            assert_eq!(builtin.bytes[..8], *b"\0asm\x0d\0\x01\0", "{}", builtin.name);
        }
        assert!(find("no-such-plugin").is_none());
    }
}

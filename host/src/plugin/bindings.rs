//! The host's side of the contract, generated from `wit/`; nothing else.
//!
//! Host functions are plain (`trappable`): none of them waits. Hooks are async,
//! so that a call runs on a fiber and can be suspended by an epoch tick.

wasmtime::component::bindgen!({
    world: "plugin",
    path: "../wit",
    imports: { default: trappable },
    exports: { default: async },
});

pub use exports::weir::plugin::hooks::{
    Action, ChunkAction, Description, Guest as Hooks, GuestIndices as HooksIndices, Phase, Phases, Problem,
};
pub use weir::plugin as imports;

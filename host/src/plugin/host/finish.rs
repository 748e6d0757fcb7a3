//! `finish`: how the request in hand has ended.

use wasmtime::{Result, bail};

use crate::{
    error::ErrorKind,
    exchange::{Ending, Exchange, Stage},
    plugin::{
        bindings::imports::finish::{Ending as WitEnding, Host},
        store::InstanceState,
    },
};

impl InstanceState {
    fn finished(&mut self) -> Result<&mut Exchange> {
        let exchange = self.exchange()?;
        if exchange.stage != Stage::Finish {
            bail!("the request is not over: this function works in on-finish only");
        }
        Ok(exchange)
    }
}

impl Host for InstanceState {
    fn outcome(&mut self) -> Result<WitEnding> {
        Ok(match self.finished()?.ending {
            Ending::Complete => WitEnding::Complete,
            Ending::ClientGone | Ending::Stopped(ErrorKind::ClientGone) => WitEnding::ClientGone,
            Ending::UpstreamCut => WitEnding::UpstreamCut,
            Ending::Stopped(_) => WitEnding::Stopped,
        })
    }

    fn sent(&mut self) -> Result<u64> {
        Ok(self.finished()?.sent)
    }

    fn duration(&mut self) -> Result<u64> {
        Ok(self.finished()?.timing.started.elapsed().as_nanos() as u64)
    }

    fn upstream_duration(&mut self) -> Result<u64> {
        Ok(self.finished()?.timing.upstream)
    }
}

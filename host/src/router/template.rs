//! Templates: paths with parameters.

use std::hash::{BuildHasher, Hasher};

use super::{Asked, Map, candidate::Candidates};
use crate::config::Segment;

/// The templates of one host pattern. Those that have their parameters in the
/// same places are one form, in which the literal segments find a template by
/// hashing; a configuration has few forms, however many templates.
#[derive(Default)]
pub struct Templates {
    /// By number of segments, the best first.
    forms: Map<usize, Vec<Form>>,
    seed: foldhash::fast::RandomState,
}

struct Form {
    /// Which segments are parameters.
    parameters: Vec<bool>,
    /// By hash of the literal segments.
    templates: Map<u64, Vec<Template>>,
}

struct Template {
    segments: Vec<Segment>,
    candidates: Candidates,
}

impl Templates {
    /// The candidates of a template; two that match the same paths are one.
    pub fn entry(&mut self, segments: &[Segment]) -> &mut Candidates {
        let parameters: Vec<bool> = segments.iter().map(|segment| matches!(segment, Segment::Parameter(_))).collect();
        let literals = segments.iter().filter_map(|segment| match segment {
            Segment::Literal(literal) => Some(literal.as_bytes()),
            Segment::Parameter(_) => None,
        });
        let key = hash(&self.seed, literals);
        let forms = self.forms.entry(segments.len()).or_default();
        let form = one_of(
            forms,
            |form| form.parameters == parameters,
            || Form { parameters: parameters.clone(), templates: Map::default() },
        );
        let templates = form.templates.entry(key).or_default();
        let template = one_of(
            templates,
            |template| same_paths(&template.segments, segments),
            || Template { segments: segments.to_vec(), candidates: Candidates::default() },
        );
        &mut template.candidates
    }

    /// Fewer parameters first; among as many, those further back.
    pub fn sort(&mut self) {
        for forms in self.forms.values_mut() {
            forms.sort_by_cached_key(|form| {
                let count = form.parameters.iter().filter(|parameter| **parameter).count();
                (count, form.parameters.clone())
            });
            let templates = forms.iter_mut().flat_map(|form| form.templates.values_mut()).flatten();
            templates.for_each(|template| template.candidates.sort());
        }
    }

    pub fn find(&self, asked: &Asked<'_>) -> Option<usize> {
        if self.forms.is_empty() {
            return None;
        }
        let parts = asked.path.as_bytes().split(|byte| *byte == b'/').skip(1);
        self.forms.get(&parts.clone().count())?.iter().find_map(|form| {
            let literals = parts.clone().zip(&form.parameters).filter(|(_, parameter)| !**parameter);
            let key = hash(&self.seed, literals.map(|(part, _)| part));
            let templates = form.templates.get(&key)?;
            templates
                .iter()
                .filter(|template| template.matches(parts.clone()))
                .find_map(|it| it.candidates.first(asked))
        })
    }
}

impl Template {
    /// Whether these segments, of which there are as many, fit.
    fn matches<'a>(&self, parts: impl Iterator<Item = &'a [u8]>) -> bool {
        self.segments.iter().zip(parts).all(|(segment, part)| match segment {
            Segment::Literal(literal) => literal.as_bytes() == part,
            Segment::Parameter(_) => !part.is_empty(),
        })
    }
}

fn hash<'a>(seed: &foldhash::fast::RandomState, literals: impl Iterator<Item = &'a [u8]>) -> u64 {
    let mut hasher = seed.build_hasher();
    literals.for_each(|literal| hasher.write(literal));
    hasher.finish()
}

/// The element that fits; a new one at the end if none does.
fn one_of<T>(elements: &mut Vec<T>, fits: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let place = elements.iter().position(fits).unwrap_or_else(|| {
        elements.push(new());
        elements.len() - 1
    });
    &mut elements[place]
}

/// Whether two templates match the same paths, whatever their parameters are
/// called.
fn same_paths(one: &[Segment], other: &[Segment]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|pair| match pair {
            (Segment::Literal(one), Segment::Literal(other)) => one == other,
            (Segment::Parameter(_), Segment::Parameter(_)) => true,
            _ => false,
        })
}

// Package prevalidate checks a custom resource against its schema by its JSON
// bytes alone. It is the one fast path of writing custom resources: an object that
// it finds valid is neither pruned, defaulted nor validated by upstream's packages,
// and stored bytes that it finds canonical are sent to readers as they are.
//
// Upstream decodes an object into maps, converts its metadata into a struct and
// back, prunes, adds defaults and builds a tree of validators for every value, and
// nearly every object comes out unchanged. A schema compiled by [Compile] walks the
// bytes instead. The hooks are rest.Strategy.Prevalidated and
// rest.CanonicalCodec.Canonical.
//
// It exists for the bar that creating custom resources reaches at least a fifth of
// raw etcd's rate. BenchmarkPrevalidate and BenchmarkWriteCustom (backends/crd)
// measure it; FuzzPrevalidate compares every answer with upstream's packages.
//
// Decisions:
//   - It never rejects. Whatever it does not understand or finds wrong is [Unknown],
//     and upstream's packages decide and word the error. A construct may be missing
//     here at the price of speed, never at the price of a wrong answer. Missing are:
//     numbers with an exponent and integers written as fractions, surrogate escapes,
//     null where the schema does not declare it, validity of the metadata of embedded
//     resources, sets of objects, enumerations of anything but strings, numbers and
//     booleans, and values nested deeper than maxDepth.
//   - It is compiled from the definition's own schema, not from the structural form:
//     validators are built from the former, and the latter drops parts of "not" and
//     "oneOf".
//   - There are two walks. The first checks syntax and that the object is canonical,
//     and stops at the first doubt. The second validates in three values: under
//     "oneOf" and "not", certainly invalid matters as much as certainly valid.
//   - Limits, formats and ranges are checked by the functions that upstream's
//     validators call, patterns by the same regular expressions.
//   - The bytes are often an encoded object, in which 1e3 has become 1000. Upstream
//     validates the number that was sent, and with other arithmetic if that is not an
//     integer of Go: it does not take 1e17 for an integer, and 0 is not below a
//     minimum of 0.5 but 0.0 is. So an integer is valid only if it is by both.
//   - CEL rules are not checked: they need decoded values.
//
// Runs in: crd.
package prevalidate

// Package prevalidate checks a custom resource against its schema by its JSON bytes
// alone. It is the one fast path of writing custom resources: an object that it finds
// valid is neither pruned, defaulted nor validated by upstream's packages, and stored
// bytes that it finds canonical are sent to readers unchanged.
//
// Upstream decodes an object into maps, converts its metadata into a struct and back,
// prunes, adds defaults and builds a tree of validators for every value, and nearly
// every object comes out unchanged. A schema compiled by [Compile] walks the bytes
// instead. The hooks are rest.Strategy.Prevalidated and rest.CanonicalCodec.Canonical.
//
// It exists for the bar that creating custom resources reaches at least a fifth of raw
// etcd's rate. BenchmarkPrevalidate and BenchmarkWriteCustom measure it; FuzzPrevalidate
// compares every verdict with upstream's packages. All three are in the tests of
// backends/crd/custom.
//
// Decisions:
//   - It never rejects. Whatever it does not support or finds invalid is left to
//     upstream's packages, which decide and word the error. A missing construct costs
//     speed and never gives a wrong answer. Missing are: numbers with an exponent,
//     integers written as fractions, surrogate escapes, null where the schema does not
//     declare it, embedded resources, sets of objects, enumerations of anything but
//     strings, limits of numbers that are not integers, "not", and "oneOf" except of
//     required fields.
//   - It is compiled from the definition's own schema, not from the structural form:
//     upstream's validators are built from the former, and the latter drops parts of
//     "oneOf".
//   - There are two walks. The first checks syntax and that the object is canonical. The
//     second validates. Both end at the first value that is not certainly right.
//   - Formats and patterns are checked by the functions that upstream's validators call.
//   - The bytes are often an encoded object, in which 1e3 has become 1000. Upstream
//     validates the number that was sent, in integer or in floating-point arithmetic:
//     it does not accept 1e17 as an integer, and 0 is not below a minimum of 0.5 but 0.0
//     is. So only numbers of at most maxDigits digits and limits that are integers are
//     checked here, for which both arithmetics agree.
//   - CEL rules are not checked: they need decoded values.
//
// Runs in: crd.
package prevalidate

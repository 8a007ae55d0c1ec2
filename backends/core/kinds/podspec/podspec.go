// Package podspec has the defaults and the rules of pod specs and pod templates, which Pod,
// PodTemplate, ReplicationController and the kinds of groups apps and batch share.
//
// Runs in: core.
package podspec

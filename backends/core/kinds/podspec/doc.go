// Package podspec has the defaults and the rules of pod specs and pod templates, which Pod,
// PodTemplate, ReplicationController and the kinds of groups apps and batch share.
//
// SetDefaults sets what every pod spec gets, SetPodDefaults what only a Pod gets.
//
// Runs in: core.
package podspec

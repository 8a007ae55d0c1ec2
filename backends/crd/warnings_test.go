package crd

import (
	"slices"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
)

// A definition of several versions with a conversion webhook gets a warning: webhooks are
// not called.
func TestConversionWebhookWarns(t *testing.T) {
	t.Parallel()
	one := []apiextensions.CustomResourceDefinitionVersion{{Name: "v1"}}
	two := append(slices.Clone(one), apiextensions.CustomResourceDefinitionVersion{Name: "v2"})
	want := []string{"spec.conversion: conversion webhooks are not called: objects can be read and written only in the version they are stored in"}
	for name, c := range map[string]struct {
		versions []apiextensions.CustomResourceDefinitionVersion
		strategy apiextensions.ConversionStrategyType
		want     []string
	}{
		"two versions": {two, apiextensions.WebhookConverter, want},
		"one version":  {one, apiextensions.WebhookConverter, nil},
		"no webhook":   {two, apiextensions.NoneConverter, nil},
	} {
		spec := &apiextensions.CustomResourceDefinitionSpec{Versions: c.versions, Conversion: &apiextensions.CustomResourceConversion{Strategy: c.strategy}}
		if got := ineffective(spec); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

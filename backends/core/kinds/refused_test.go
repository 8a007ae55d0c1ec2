package kinds

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portico/internal/testing/kindtest"
	"portico/resource/rest"
)

// refuse sends a write with these errors and fails if the server does not refuse it with them,
// or stores anything.
func refuse(t *testing.T, s *kindtest.Server, c kindtest.Case, sub string, want []string) {
	t.Helper()
	name, body := s.Prepare(t, c)
	before := s.Revision()
	w := s.Send(name, sub, body)
	if s.Revision() != before {
		t.Errorf("%s: something is stored", c.Name)
	}
	var got []string
	for _, cause := range kindtest.Sorted(kindtest.WithoutMetadata(kindtest.CausesOf(t, c.Name, w))) {
		got = append(got, cause.Field+": "+cause.Reason)
	}
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("%s\n\tgot  %v\n\twant %v", c.Name, got, want)
	}
}

// Writes with other metadata (names, annotations, labels, finalizers, owners) have the causes and
// warnings of kube-apiserver for every kind, recorded by .ci/long kinds.
func TestMetadataOfWrites(t *testing.T) {
	recorded := kindtest.ReadRecorded(t, filepath.Join("testdata", "metadata.txt"))
	for _, k := range slices.DeleteFunc(allKinds(), (*rest.Kind).Virtual) {
		for _, version := range k.Versions {
			gvr := k.GVR(version)
			t.Run(kindtest.FileName(gvr), func(t *testing.T) {
				t.Parallel()
				server := kindtest.Serve(k, version)
				kindtest.MetadataCases(kindtest.Objects(t, filepath.Join("testdata", "objects"), gvr), func(c kindtest.Case) {
					want := recorded.Of(c.Name, kindtest.FileName(gvr))
					if len(want) == 0 && !strings.HasPrefix(c.Name, "create with ") {
						return // .ci/long kinds has what is accepted, but for names
					}
					if got := kindtest.Lines(c.Name, server.MetadataOutcome(t, c)); !slices.Equal(got, want) {
						t.Errorf("%s\n\tgot  %v\n\twant %v", c.Name, got, want)
					}
				})
			})
		}
	}
}

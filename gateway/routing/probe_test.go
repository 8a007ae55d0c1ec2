package routing

import (
	"context"
	"log/slog"
	"testing"

	"portico/discovery/sources"
)

// schemaNews is a source whose OpenAPI changes now and then, and nothing else.
type schemaNews struct {
	*sources.Source
	fresh bool
}

func (s *schemaNews) Check(context.Context) error                  { return nil }
func (s *schemaNews) RefreshOpenAPI(context.Context) (bool, error) { return s.fresh, nil }

// A schema that changes while discovery says the same is told to who publishes it,
// and that nothing changed is not.
func TestProbeTellsOfOpenAPI(t *testing.T) {
	s := &Controller{log: slog.New(slog.DiscardHandler)}
	source := &schemaNews{Source: sources.NewSource(sources.Config{})}
	fakeBackend(t, s, "crd", source)
	for _, fresh := range []bool{false, true} {
		source.fresh = fresh
		for len(s.wake.C()) > 0 {
			<-s.wake.C()
		}
		if err := s.Probe(t.Context(), s.servers[targetOfBackend("crd")]); err != nil {
			t.Fatal(err)
		}
		if told := len(s.wake.C()) > 0; told != fresh {
			t.Errorf("there is a new index: %v, told: %v", fresh, told)
		}
	}
}

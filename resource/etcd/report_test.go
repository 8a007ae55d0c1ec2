package etcd

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
)

// A report names the leader of each election and the candidates that wait, the sizes of etcd,
// and which member does not answer.
func TestReport(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	away := "unix://" + filepath.Join(t.TempDir(), "away")
	c := s.client(t, func(cfg *Config) { cfg.Endpoints = append(cfg.Endpoints, away) })
	leading := make(chan struct{}, 2)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 3)
	campaign := func(name, id string) {
		go func() {
			stopped <- c.Campaign(ctx, name, id, func(term context.Context) { leading <- struct{}{}; <-term.Done() })
		}()
	}
	campaign("one", "a")
	<-leading
	campaign("two", "c")
	<-leading
	campaign("one", "b")
	eventually(t, "b waits", func(ctx context.Context) error {
		got, err := c.elections(ctx)
		if want := []Election{{"one", "a", 1}, {"two", "c", 0}}; !slices.Equal(got, want) {
			return fmt.Errorf("elections are %+v (%v)", got, err)
		}
		return nil
	})
	r := c.Report(t.Context())
	if len(r.Elections) != 2 || r.Error != "" {
		t.Errorf("the report has elections %+v (%s)", r.Elections, r.Error)
	}
	if m := r.Members[0]; !m.Leader || m.Error != "" || m.Version == "" || m.Size < 1<<12 || m.InUse <= 0 || m.InUse > m.Size || m.Quota < m.Size || m.Milliseconds <= 0 {
		t.Errorf("the member is %+v", m)
	}
	if m := r.Members[1]; m.Endpoint != away || m.Error == "" {
		t.Errorf("the member that is away is %+v", m)
	}
	cancel()
	for range 3 {
		<-stopped
	}
	if left, err := c.elections(t.Context()); len(left) != 0 || err != nil {
		t.Errorf("after the end: %+v, %v", left, err)
	}
}

package watchcache_test

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// memberEnv makes this test binary a member of an etcd cluster. Its value is the arguments of
// runMember, separated by spaces.
const memberEnv = "PORTICO_TEST_ETCD_MEMBER"

func TestMain(m *testing.M) {
	if member := os.Getenv(memberEnv); member != "" {
		if err := runMember(strings.Fields(member)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runMember serves until its standard input is closed, as it is when its parent ends.
func runMember(args []string) error {
	name, dir, client, peer, cluster := args[0], args[1], args[2], args[3], args[4]
	parse := func(text string) []url.URL {
		u, err := url.Parse(text)
		if err != nil {
			panic(err)
		}
		return []url.URL{*u}
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = name, dir
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = parse(client), parse(client)
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = parse(peer), parse(peer)
	cfg.InitialCluster = cluster
	cfg.TickMs, cfg.ElectionMs = 50, 500
	cfg.UnsafeNoFsync = true
	cfg.LogLevel, cfg.LogOutputs = "error", []string{os.DevNull}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	<-e.Server.ReadyNotify()
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	e.Close()
	return nil
}

// member is an etcd process of a cluster.
type member struct {
	t        testing.TB
	endpoint string
	cmd      *exec.Cmd
}

// newCluster starts a cluster of size members and waits until each of them
// serves.
func newCluster(t testing.TB, size int) []*member {
	t.Helper()
	var members []*member
	var peers, cluster []string
	for i := range size {
		client, peer := freeAddress(t), freeAddress(t)
		members = append(members, &member{t: t, endpoint: "http://" + client})
		peers = append(peers, "http://"+peer)
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", i, peer))
	}
	var ready []io.Reader
	for i, m := range members {
		m.cmd = exec.Command(os.Args[0])
		m.cmd.Env = append(os.Environ(), memberEnv+"="+strings.Join(
			[]string{fmt.Sprint("m", i), t.TempDir(), m.endpoint, peers[i], strings.Join(cluster, ",")}, " "))
		m.cmd.Stderr = os.Stderr
		stdin, err := m.cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := m.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := m.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			m.signal(syscall.SIGCONT)
			_ = stdin.Close()
			_ = m.cmd.Process.Kill() // its data goes with the test
			_ = m.cmd.Wait()
		})
		ready = append(ready, stdout)
	}
	for i, r := range ready {
		if line := make([]byte, len("ready\n")); true {
			if _, err := io.ReadFull(r, line); err != nil {
				t.Fatalf("member %d: %v", i, err)
			}
		}
	}
	return members
}

// freeAddress returns an unused address of loopback.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// signal stops (SIGSTOP) or continues the process.
func (m *member) signal(s syscall.Signal) { _ = m.cmd.Process.Signal(s) }

// pause stops the member until resume; its connections stay open.
func (m *member) pause() {
	m.t.Helper()
	m.signal(syscall.SIGSTOP)
	deadline := time.Now().Add(10 * time.Second)
	for !m.stopped() {
		if time.Now().After(deadline) {
			m.t.Fatal("the member does not stop")
		}
		time.Sleep(time.Millisecond)
	}
}

func (m *member) resume() { m.signal(syscall.SIGCONT) }

// stopped reports whether the process is stopped.
func (m *member) stopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.cmd.Process.Pid))
	if err != nil {
		return true // no such files here: the signal must do
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "T")
}

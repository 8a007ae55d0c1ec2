package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
	"portico/internal/testing/await"
)

// The scripts in testdata/script share one running installation, so none of
// them stops or kills anything, and each works in the namespace $NS. Besides
// testscript's own commands they have:
//
//	until REGEXP COMMAND ARGS...   runs a program until it succeeds and prints
//	                               what matches; its output becomes stdout
//	http [FLAGS] METHOD PATH [FILE]
//	                               sends a request and prints the status line,
//	                               headers and body; see httpFlags
//	replace FILE OLD NEW           replaces text in a file
func TestScripts(t *testing.T) {
	up := e2e.SharedInstallation(t)
	e2e.Program(t, testtools.Kubectl)
	programs := filepath.Dir(e2e.Program(t, testtools.Portico)) // of both
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			name := strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
			// The client keeps its certificate in the file: a copy may be
			// changed by the script.
			config := filepath.Join(env.WorkDir, "kubeconfig")
			data, err := os.ReadFile(up.Kubeconfig)
			if err != nil {
				return err
			}
			env.Setenv("PATH", programs+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("KUBECONFIG", config)
			env.Vars = append(env.Vars, e2e.NoCollector)
			env.Setenv("ENDPOINT", up.Endpoint)
			env.Setenv("NS", "script-"+name)
			env.Setenv("REPO", e2e.Repository())
			env.Setenv("PKI", filepath.Join(up.Dir, "pki"))
			return os.WriteFile(config, data, 0o600)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"until": untilCommand, "http": httpCommand, "replace": replaceCommand,
		},
	})
}

func untilCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until regexp command args...")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	deadline := time.Now().Add(await.Patience())
	for {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && want.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no %q: %v\n%s%s", args[0], err, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// headerFlags is a repeatable -H.
type headerFlags struct{ http.Header }

func (h headerFlags) String() string { return "" }
func (h headerFlags) Set(s string) error {
	name, value, ok := strings.Cut(s, ":")
	if !ok {
		return errors.New("want Name: value")
	}
	h.Header.Add(name, strings.TrimSpace(value))
	return nil
}

// httpCommand sends a request with the administrator's certificate (-as admin, the default), or
// with none (-as anonymous).
func httpCommand(ts *testscript.TestScript, neg bool, args []string) {
	header := headerFlags{http.Header{}}
	fs := flag.NewFlagSet("http", flag.ContinueOnError)
	as := fs.String("as", "admin", "")
	fs.Var(header, "H", "")
	ts.Check(fs.Parse(args))
	if neg || fs.NArg() < 2 {
		ts.Fatalf("usage: http [-as admin|anonymous] [-H 'Name: value'] method path [file]")
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", ts.Getenv("KUBECONFIG"))
	ts.Check(err)
	if *as == "anonymous" {
		cfg = rest.AnonymousClientConfig(cfg)
	}
	client, err := rest.HTTPClientFor(cfg)
	ts.Check(err)
	defer client.CloseIdleConnections()
	client.Timeout = await.Patience()
	var body io.Reader
	if fs.NArg() > 2 {
		body = strings.NewReader(ts.ReadFile(fs.Arg(2)))
	}
	req, err := http.NewRequest(fs.Arg(0), ts.Getenv("ENDPOINT")+fs.Arg(1), body)
	ts.Check(err)
	req.Header = header.Header
	resp, err := client.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%s\n", resp.Status)
	var names []string
	for name := range resp.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(ts.Stdout(), "%s: %s\n", name, strings.Join(resp.Header[name], ", "))
	}
	fmt.Fprintf(ts.Stdout(), "\n%s\n", data)
}

func replaceCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: replace file old new")
	}
	text := ts.ReadFile(args[0])
	if !strings.Contains(text, args[1]) {
		ts.Fatalf("%s does not hold %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.ReplaceAll(text, args[1], args[2])), 0o600))
}

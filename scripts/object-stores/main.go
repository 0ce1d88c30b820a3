// Object stores for the tests: `object-stores s3 PORT FOLDER` is a gateway that speaks S3 and proves signatures, keys
// from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; `object-stores gs PORT FOLDER` speaks Google's JSON. Buckets are
// folders in FOLDER. Built by `make services`.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func s3(ctx context.Context, port uint16, folder string) error {
	// S3 copies objects of up to 5 GB in one request
	store, err := posix.New(folder, meta.XattrMeta{}, posix.PosixOpts{CopyObjectThreshold: 5 << 30})
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(ctx, store, &embedgw.Config{
		RootUserAccess:    os.Getenv("AWS_ACCESS_KEY_ID"),
		RootUserSecret:    os.Getenv("AWS_SECRET_ACCESS_KEY"),
		Region:            "eu-central-1",
		Ports:             []string{fmt.Sprintf("127.0.0.1:%d", port)},
		MaxConnections:    1000,
		MaxRequests:       1000,
		MultipartMaxParts: 10000,
		Quiet:             true,
	})
}

func gs(ctx context.Context, port uint16, folder string) error {
	address := fmt.Sprintf("127.0.0.1:%d", port)
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		StorageRoot: folder,
		Scheme:      "http",
		Host:        "127.0.0.1",
		Port:        port,
		ExternalURL: "http://" + address,
		PublicHost:  address,
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	server.Stop()
	return nil
}

func main() {
	stores := map[string]func(context.Context, uint16, string) error{"s3": s3, "gs": gs}
	if len(os.Args) != 4 || stores[os.Args[1]] == nil {
		log.Fatal("object-stores s3|gs PORT FOLDER")
	}
	port, err := strconv.ParseUint(os.Args[2], 10, 16)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := stores[os.Args[1]](ctx, uint16(port), os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

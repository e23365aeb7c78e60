// SPDX-License-Identifier: Apache-2.0
// More calls, with what qdbusxml2cpp generates (see qt.cpp; batch likewise). The program downloads URL to FOLDER, then into a descriptor,
// and then as a batch. It reads values of most types in todokutypes.h.
#include "batch.h"
#include "download.h"
#include "downloader.h"
#include <QCoreApplication>
#include <QDBusUnixFileDescriptor>
#include <QFile>
#include <QTextStream>

template<typename Reply> static Reply finished(Reply reply)
{
    reply.waitForFinished();
    if (reply.isError()) qFatal("%s", qPrintable(reply.error().name() + ": " + reply.error().message()));
    return reply;
}

int main(int argc, char **argv)
{
    QCoreApplication app(argc, argv);
    if (argc != 3) qFatal("usage: %s URL FOLDER", argv[0]);
    const QString url = argv[1], folder = argv[2], service = "org.todoku.Downloader1";
    QTextStream out(stdout);
    registerTodokuTypes();
    QDBusConnection bus = QDBusConnection::sessionBus();
    OrgTodokuDownloader1Interface manager(service, "/org/todoku/Downloader1", bus);
    const QVariantMap options { { "directory", folder }, { "notify", "never" } };

    const QDBusObjectPath path = finished(manager.Download(url, options));
    OrgTodokuDownload1Interface download(service, path.path(), bus);
    download.setTimeout(600000);
    out << "path " << finished(download.Wait(QVariantMap())).value() << "\n";
    out << "directory " << download.directory() << "\n";
    out << "error '" << download.error().name << "'\n";
    // Into a descriptor, also back again.
    QFile file(folder + "/own");
    if (!file.open(QIODevice::ReadWrite)) qFatal("%s", qPrintable(file.errorString()));
    const QDBusObjectPath own = finished(manager.DownloadToFd(url, QDBusUnixFileDescriptor(file.handle()), { { "notify", "never" } }));
    OrgTodokuDownload1Interface ownDownload(service, own.path(), bus);
    ownDownload.setTimeout(600000);
    finished(ownDownload.Wait(QVariantMap()));
    out << "own " << QString::fromUtf8(file.readAll()) << "\n";
    QFile opened;
    const QDBusUnixFileDescriptor descriptor = finished(download.OpenFile());
    if (!opened.open(descriptor.fileDescriptor(), QIODevice::ReadOnly)) qFatal("%s", qPrintable(opened.errorString()));
    out << "opened " << QString::fromUtf8(opened.readAll()) << "\n";

    TodokuItems items { { url, { { "filename", "one" } } }, { url, { { "filename", "two" } } } };
    auto batch = finished(manager.DownloadBatch(items, options));
    OrgTodokuBatch1Interface members(service, batch.argumentAt<0>().path(), bus);
    members.setTimeout(600000);
    out << "batch " << finished(members.Wait(QVariantMap())).argumentAt<0>() << "\n";
    out << "listed " << finished(manager.ListBatches(QVariantMap())).value().size() << "\n";
    for (const TodokuDescription &each : finished(manager.Describe({ { "batch", QVariant::fromValue(batch.argumentAt<0>()) } }, { "State" })).value())
        out << "described " << each.properties["State"].toString() << "\n";
    out << "rules " << manager.hostRules().value("musicbrainz.org").value("request-interval").toUInt() << "\n";
    return 0;
}

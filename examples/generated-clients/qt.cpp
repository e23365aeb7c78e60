// SPDX-License-Identifier: Apache-2.0
// A client of Todoku, with what qdbusxml2cpp generates:
//   interfaces=$(pkg-config --variable=interfaces_dir todoku)
//   qdbusxml2cpp -i todokutypes.h -p downloader $interfaces/org.todoku.Downloader1.xml
//   qdbusxml2cpp -i todokutypes.h -p download $interfaces/org.todoku.Download1.xml
//   moc qt.cpp -o qt.moc
// `pkg-config --cflags todoku` finds todokutypes.h.
//
//   client [--again | --cancel] URL [FOLDER]
//
// It queues a download, shows its progress, and waits for its end. If the client is killed, the download continues, and --again waits for
// it; --cancel cancels it. The exit status is 0 if the download finished or was cancelled by --cancel, 1 if it failed, and 69 if Todoku is
// missing. An existing file of the same name is replaced.
#include "download.h"
#include "downloader.h"
#include <QCoreApplication>
#include <QCryptographicHash>
#include <QDBusPendingCallWatcher>
#include <QDir>
#include <QElapsedTimer>
#include <QTimer>
#include <climits>
#include <cstdio>

static void tell(const QString &line)
{
    std::puts(line.toUtf8().constData());
    std::fflush(stdout);
}

/// The service exited or crashed before it answered.
static bool isLost(const QDBusError &error) { return error.type() == QDBusError::NoReply; }

/// Calls `then` when the answer is there, in order with the signals.
template<typename Reply, typename Then> static void whenAnswered(const Reply &reply, Then then)
{
    auto watcher = new QDBusPendingCallWatcher(reply);
    QObject::connect(watcher, &QDBusPendingCallWatcher::finished, [=] {
        watcher->deleteLater();
        then(reply);
    });
}

class Client : public QObject
{
    Q_OBJECT

public:
    Client(const QString &url, const QString &folder)
        : url(url), folder(folder),
          // A letter, then letters and digits: such a token needs no escaping in the object path.
          token("url" + QCryptographicHash::hash(url.toUtf8(), QCryptographicHash::Sha256).toHex().left(32)),
          download(service, manager + "/download/by_token/" + QString(app).replace('.', "_2e") + "/" + token, bus)
    {
    }

    int run(const QString &what)
    {
        // download.path() is the property Path of the file; the base class knows the path of the object.
        const QString object = download.QDBusAbstractInterface::path();
        if (what == "--cancel") {
            QDBusPendingReply<> cancelled = download.Cancel();
            cancelled.waitForFinished();
            if (cancelled.isError()) return failed(cancelled.error());
            tell("cancelled " + object);
            return 0;
        }
        // Subscribe first, then read: a change between the two is reported twice rather than never.
        QObject::connect(&download, &OrgTodokuDownload1Interface::Progress,
            [this](qulonglong, qulonglong received, qlonglong total) { progress(received, total); });
        bus.connect(service, object, "org.freedesktop.DBus.Properties", "PropertiesChanged", this,
            SLOT(changed(QString,QVariantMap,QStringList)));
        QDBusError error = what.isEmpty() ? queue() : QDBusError();
        if (isLost(error)) error = queue();  // the next call starts the service
        if (error.isValid()) return failed(error);
        QDBusMessage getAll = QDBusMessage::createMethodCall(service, object, "org.freedesktop.DBus.Properties", "GetAll");
        getAll << download.interface();
        whenAnswered(QDBusPendingReply<QVariantMap>(bus.asyncCall(getAll)), [this](const QDBusPendingReply<QVariantMap> &reply) {
            if (reply.isError() && !isLost(reply.error())) return QCoreApplication::exit(failed(reply.error()));
            if (!reply.isError()) {
                progress(reply.value()["Received"].toULongLong(), reply.value()["Total"].toLongLong());
                waits(reply.value()["WaitReason"].toString());
            }
            download.setTimeout(INT_MAX);  // no time limit; otherwise 25 s
            wait();
        });
        return QCoreApplication::exec();
    }

private slots:
    void changed(const QString &, const QVariantMap &values, const QStringList &) { waits(values["WaitReason"].toString()); }

private:
    const QString app = "org.example.QtClient", service = "org.todoku.Downloader1", manager = "/org/todoku/Downloader1";
    static constexpr int mostLosses = 6;  // in a row: then the service does not work
    QDBusConnection bus = QDBusConnection::sessionBus();
    const QString url, folder, token;
    OrgTodokuDownload1Interface download;
    int losses = 0;

    /// After the answer, the download is on disk. The token makes a repeated call return the same download.
    QDBusError queue()
    {
        // An ended download of an earlier run still has the token: the call Download would return it.
        const QString state = download.state();  // empty: there is no such download, or no answer came
        if (state.isEmpty() && isLost(download.lastError())) return download.lastError();
        if (QStringList { "finished", "failed", "cancelled" }.contains(state)) {
            QDBusPendingReply<> removed = download.Remove(false);
            removed.waitForFinished();
            if (removed.isError()) return removed.error();
        }
        QVariantMap options { { "app", app }, { "token", token }, { "if-exists", "replace" } };
        if (!folder.isEmpty()) options["directory"] = folder;
        OrgTodokuDownloader1Interface todoku(service, manager, bus);
        todoku.setTimeout(60000);
        QDBusPendingReply<QDBusObjectPath> queued = todoku.Download(url, options);
        queued.waitForFinished();
        if (!queued.isError()) tell("queued " + queued.value().path());
        return queued.error();
    }

    void progress(qulonglong received, qlonglong total)
    {
        // The total is -1 while the server has not told it.
        if (received > 0) tell(QString("progress %1 of %2").arg(received).arg(total));
    }

    /// Says why the download waits. docs/dbus.md has the reasons; empty: it does not wait.
    void waits(const QString &reason)
    {
        if (!reason.isEmpty()) tell("waiting " + reason);
    }

    void wait()
    {
        QElapsedTimer asked;
        asked.start();
        whenAnswered(download.Wait({}), [this, asked](const QDBusPendingReply<QString> &reply) {
            if (!reply.isError()) {
                tell("finished " + reply.value());
                return QCoreApplication::exit(0);
            }
            losses = asked.elapsed() > 30000 ? 1 : losses + 1;
            if (!isLost(reply.error()) || losses > mostLosses) return QCoreApplication::exit(failed(reply.error()));
            // The download resumes with the service, and the next call starts the service.
            QTimer::singleShot(losses == 1 ? 0 : 1000 << (losses - 2), [this] { wait(); });
        });
    }

    int failed(const QDBusError &error)
    {
        // The bus knows no such service, or cannot start it.
        const QString name = error.name();
        const bool isMissing = error.type() == QDBusError::ServiceUnknown || name.startsWith("org.freedesktop.DBus.Error.Spawn.")
            || name.startsWith("org.freedesktop.systemd1.");
        const QString cause = isMissing ? "Todoku is not installed, or cannot be started: " : "";
        tell("failed " + name.section('.', -1) + ": " + cause + error.message());
        return isMissing ? 69 : 1;
    }
};

int main(int argc, char **argv)
{
    QCoreApplication application(argc, argv);
    QStringList given;
    for (int i = 1; i < argc; i++) given << QString::fromUtf8(argv[i]);
    const QString what = given.value(0) == "--again" || given.value(0) == "--cancel" ? given.takeFirst() : QString();
    if (given.isEmpty() || given.size() > 2) return std::fprintf(stderr, "usage: %s [--again | --cancel] URL [FOLDER]\n", argv[0]), 64;
    // A relative name begins with the working folder.
    const QString folder = given.value(1).isEmpty() ? QString() : QDir::cleanPath(QDir::current().absoluteFilePath(given[1]));
    // Qt has replaced bytes that are not UTF-8.
    const bool isText = !(given[0] + folder).contains(QChar::ReplacementCharacter);
    if (!isText) return std::fprintf(stderr, "%s: D-Bus carries only text in UTF-8\n", argv[0]), 64;
    registerTodokuTypes();
    return Client(given[0], folder).run(what);
}

#include "qt.moc"

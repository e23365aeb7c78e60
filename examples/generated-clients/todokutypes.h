// SPDX-License-Identifier: Apache-2.0
// The types that Qt's generated code names for Todoku's interfaces: qdbusxml2cpp -i todokutypes.h -p downloader org.todoku.Downloader1.xml
// Call registerTodokuTypes() once before the first call.
#pragma once
#include <QDBusArgument>
#include <QDBusMetaType>
#include <QDBusObjectPath>
#include <QList>
#include <QMap>
#include <QString>
#include <QVariantMap>

using TodokuHostRules = QMap<QString, QVariantMap>;  // a{sa{sv}}
using TodokuStrings = QMap<QString, QString>;        // a{ss}
using TodokuPushRegistrations = QList<QVariantMap>;  // aa{sv}
using TodokuSources = QList<QVariantMap>;            // aa{sv}

struct TodokuItem { QString url; QVariantMap options; };  // (sa{sv})
using TodokuItems = QList<TodokuItem>;

struct TodokuDescription { QDBusObjectPath download; QVariantMap properties; };  // (oa{sv})
using TodokuDescriptions = QList<TodokuDescription>;

struct TodokuAssetUpdate { QDBusObjectPath asset; bool changed = false; QString path; };  // (obs)
using TodokuAssetUpdates = QList<TodokuAssetUpdate>;

struct TodokuError { QString name, message; QVariantMap details; };  // (ssa{sv})

struct TodokuSalvage { uint downloads = 0; bool mayHaveLost = false; };  // (ub)

Q_DECLARE_METATYPE(TodokuPushRegistrations)
Q_DECLARE_METATYPE(TodokuItem)
Q_DECLARE_METATYPE(TodokuItems)
Q_DECLARE_METATYPE(TodokuDescription)
Q_DECLARE_METATYPE(TodokuDescriptions)
Q_DECLARE_METATYPE(TodokuAssetUpdate)
Q_DECLARE_METATYPE(TodokuAssetUpdates)
Q_DECLARE_METATYPE(TodokuError)
Q_DECLARE_METATYPE(TodokuSalvage)

inline QDBusArgument &operator<<(QDBusArgument &a, const TodokuItem &v) { a.beginStructure(); a << v.url << v.options; a.endStructure(); return a; }
inline const QDBusArgument &operator>>(const QDBusArgument &a, TodokuItem &v) { a.beginStructure(); a >> v.url >> v.options; a.endStructure(); return a; }
inline QDBusArgument &operator<<(QDBusArgument &a, const TodokuDescription &v) { a.beginStructure(); a << v.download << v.properties; a.endStructure(); return a; }
inline const QDBusArgument &operator>>(const QDBusArgument &a, TodokuDescription &v) { a.beginStructure(); a >> v.download >> v.properties; a.endStructure(); return a; }
inline QDBusArgument &operator<<(QDBusArgument &a, const TodokuAssetUpdate &v) { a.beginStructure(); a << v.asset << v.changed << v.path; a.endStructure(); return a; }
inline const QDBusArgument &operator>>(const QDBusArgument &a, TodokuAssetUpdate &v) { a.beginStructure(); a >> v.asset >> v.changed >> v.path; a.endStructure(); return a; }
inline QDBusArgument &operator<<(QDBusArgument &a, const TodokuError &v) { a.beginStructure(); a << v.name << v.message << v.details; a.endStructure(); return a; }
inline const QDBusArgument &operator>>(const QDBusArgument &a, TodokuError &v) { a.beginStructure(); a >> v.name >> v.message >> v.details; a.endStructure(); return a; }
inline QDBusArgument &operator<<(QDBusArgument &a, const TodokuSalvage &v) { a.beginStructure(); a << v.downloads << v.mayHaveLost; a.endStructure(); return a; }
inline const QDBusArgument &operator>>(const QDBusArgument &a, TodokuSalvage &v) { a.beginStructure(); a >> v.downloads >> v.mayHaveLost; a.endStructure(); return a; }

inline void registerTodokuTypes()
{
    qDBusRegisterMetaType<TodokuHostRules>();
    qDBusRegisterMetaType<TodokuStrings>();
    qDBusRegisterMetaType<TodokuItem>();
    qDBusRegisterMetaType<TodokuItems>();
    qDBusRegisterMetaType<TodokuDescription>();
    qDBusRegisterMetaType<TodokuDescriptions>();
    qDBusRegisterMetaType<TodokuAssetUpdate>();
    qDBusRegisterMetaType<TodokuAssetUpdates>();
    qDBusRegisterMetaType<TodokuPushRegistrations>();
    qDBusRegisterMetaType<TodokuError>();
    qDBusRegisterMetaType<TodokuSalvage>();
    // Qt 5 finds the type of a property by the name in the generated code.
    qRegisterMetaType<TodokuHostRules>("TodokuHostRules");
    qRegisterMetaType<TodokuStrings>("TodokuStrings");
    qRegisterMetaType<TodokuItems>("TodokuItems");
    qRegisterMetaType<TodokuDescriptions>("TodokuDescriptions");
    qRegisterMetaType<TodokuAssetUpdates>("TodokuAssetUpdates");
    qRegisterMetaType<TodokuPushRegistrations>("TodokuPushRegistrations");
    qRegisterMetaType<TodokuSources>("TodokuSources");
}
